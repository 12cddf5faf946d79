package logwright.oracle.kafka;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import logwright.oracle.Answers;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.MessageFormatter;

/** The message formatters of Kafka's console consumer. */
final class Formatters {
    /**
     * {"formatter": class, "records": [{"key", "value"}]} in hex or null: what the formatter prints for each record, null for a record
     * that it leaves out, and {"error"} for one that it cannot read.
     */
    static JsonNode formatted(JsonNode request, Answers.Items items) throws IOException, ReflectiveOperationException {
        try (MessageFormatter formatter = (MessageFormatter) Class.forName(request.get("formatter").asText())
                .getDeclaredConstructor().newInstance()) {
            formatter.configure(Map.of());
            for (JsonNode record : request.get("records")) {
                ByteArrayOutputStream out = new ByteArrayOutputStream();
                try (PrintStream printer = new PrintStream(out, false, StandardCharsets.UTF_8)) {
                    formatter.writeTo(new ConsumerRecord<>("topic", 0, 0, Hex.bytes(record.get("key")), Hex.bytes(record.get("value"))), printer);
                } catch (RuntimeException error) {
                    items.add(Answers.JSON.createObjectNode().put("error", error.toString()));
                    continue;
                }
                String text = out.toString(StandardCharsets.UTF_8);
                items.add(text.isEmpty() ? Answers.JSON.nullNode() : Answers.JSON.readTree(text));
            }
        }
        return Answers.JSON.nullNode();
    }

    private Formatters() {
    }
}
