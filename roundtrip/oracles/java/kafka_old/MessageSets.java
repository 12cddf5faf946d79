package logwright.oracle.kafka_old;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.Map;
import logwright.oracle.Answers;
import org.apache.kafka.common.record.FileLogInputStream.FileChannelRecordBatch;
import org.apache.kafka.common.record.FileRecords;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.Records;
import org.apache.kafka.common.utils.Time;

/** Log segments by the classes of Kafka 2.8 to 3.9, which still convert to older magics. */
public final class MessageSets {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] args) throws IOException {
        Answers.run(Map.of("batches", MessageSets::batches, "down_convert", MessageSets::downConvert));
    }

    /** {"path"}: an item for each batch, with its records. Every checksum is verified, those of inner messages too. */
    private static JsonNode batches(JsonNode request, Answers.Items items) throws IOException {
        try (FileRecords log = FileRecords.open(new File(request.get("path").asText()), false)) {
            for (FileChannelRecordBatch batch : log.batches()) {
                batch.ensureValid();
                items.add(describe(batch));
            }
            return Answers.JSON.createObjectNode().put("size", log.sizeInBytes());
        }
    }

    /** {"path", "magic"}: an item for each batch of the log in an older magic, as a broker sends it to an old consumer. Done: all bytes. */
    private static JsonNode downConvert(JsonNode request, Answers.Items items) throws IOException {
        byte magic = (byte) request.get("magic").asInt();
        try (FileRecords log = FileRecords.open(new File(request.get("path").asText()), false)) {
            Records converted = log.downConvert(magic, 0, Time.SYSTEM).records();
            for (RecordBatch batch : converted.batches()) {
                items.add(describe(batch));
            }
            return Answers.JSON.getNodeFactory().textNode(hex(((MemoryRecords) converted).buffer()));
        }
    }

    private static ObjectNode describe(RecordBatch batch) {
        ObjectNode node = Answers.JSON.createObjectNode();
        node.put("magic", batch.magic());
        node.put("last_offset", batch.lastOffset());
        node.put("compression", batch.compressionType().name);
        node.put("timestamp_type", batch.timestampType().name);
        node.put("max_timestamp", batch.maxTimestamp());
        node.put("is_control", batch.isControlBatch());
        ArrayNode records = node.putArray("records");
        for (Record record : batch) {
            record.ensureValid();
            ObjectNode row = records.addObject();
            row.put("offset", record.offset());
            row.put("timestamp", record.timestamp());
            row.put("key", hex(record.key()));
            row.put("value", hex(record.value()));
            row.put("headers", record.headers().length);
        }
        return node;
    }

    private static String hex(ByteBuffer buffer) {
        if (buffer == null) {
            return null;
        }
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return HEX.formatHex(bytes);
    }

    private MessageSets() {
    }
}
