package logwright.oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/**
 * Answers questions with the real system's own classes, one JSON line each: what the oracles of all systems share.
 *
 * A request is {@code {"op": name, ...}}. The answer is any number of {@code {"item": ...}} lines, then one line
 * {@code {"done": ...}} or {@code {"error": {"class", "message", "causes", "trace"}}}. Nothing else ever goes to stdout;
 * the system's log goes to stderr. The end of stdin ends the process.
 */
public final class Answers {
    public static final ObjectMapper JSON = new ObjectMapper();

    /** Where an operation puts what it finds on the way to its result. */
    public interface Items {
        void add(JsonNode item) throws IOException;
    }

    public interface Operation {
        JsonNode run(JsonNode request, Items items) throws Exception;
    }

    /** Answers until there are no more questions, and ends the process: servers and clients leave threads behind. */
    public static void run(Map<String, Operation> operations) throws IOException {
        Writer out = new OutputStreamWriter(
            new BufferedOutputStream(new FileOutputStream(FileDescriptor.out), 1 << 16), StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode end = JSON.createObjectNode();
            try {
                JsonNode request = JSON.readTree(line);
                Operation operation = operations.get(request.path("op").asText());
                if (operation == null) {
                    throw new IllegalArgumentException("no operation " + request.path("op"));
                }
                end.set("done", operation.run(request, item -> {
                    ObjectNode node = JSON.createObjectNode();
                    node.set("item", item);
                    out.write(JSON.writeValueAsString(node));
                    out.write('\n');
                }));
            } catch (Throwable error) {
                end.removeAll();
                end.set("error", describe(error));
            }
            out.write(JSON.writeValueAsString(end));
            out.write('\n');
            out.flush();
        }
        Runtime.getRuntime().exit(0);
    }

    /** An error as it is told: its class, its message, what caused it. */
    public static ObjectNode describe(Throwable error) {
        ObjectNode node = JSON.createObjectNode();
        node.put("class", error.getClass().getName());
        node.put("message", error.getMessage());
        ArrayNode causes = node.putArray("causes");
        for (Throwable cause = error.getCause(); cause != null; cause = cause.getCause()) {
            causes.add(cause.toString());
        }
        StringWriter trace = new StringWriter();
        error.printStackTrace(new PrintWriter(trace));
        node.put("trace", trace.toString());
        return node;
    }

    private Answers() {
    }
}
