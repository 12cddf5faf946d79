package logwright.oracle.zookeeper;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/**
 * Answers questions with ZooKeeper's own classes, one JSON line each.
 *
 * A request is {@code {"op": name, ...}}. The answer is any number of {@code {"item": ...}} lines, then one line
 * {@code {"done": ...}} or {@code {"error": {"class", "message", "causes", "trace"}}}. Nothing else ever goes to stdout;
 * ZooKeeper's log goes to stderr. The end of stdin ends the process.
 */
public final class Oracle {
    static final ObjectMapper JSON = new ObjectMapper();

    /** Where an operation puts what it finds on the way to its result. */
    interface Items {
        void add(JsonNode item) throws IOException;
    }

    interface Operation {
        JsonNode run(JsonNode request, Items items) throws Exception;
    }

    private static final Map<String, Operation> OPERATIONS = Map.ofEntries(
        Map.entry("restore", Data::restore),
        Map.entry("serve", Serve::serve),
        Map.entry("snapshot_formatter", Tools::snapshotFormatter),
        Map.entry("txn_log_toolkit", Tools::txnLogToolkit));

    public static void main(String[] args) throws IOException {
        Writer out = new OutputStreamWriter(
            new java.io.BufferedOutputStream(new FileOutputStream(FileDescriptor.out), 1 << 16), StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode end = JSON.createObjectNode();
            try {
                JsonNode request = JSON.readTree(line);
                Operation operation = OPERATIONS.get(request.path("op").asText());
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
        // Servers and clients leave threads behind.
        Runtime.getRuntime().exit(0);
    }

    static ObjectNode describe(Throwable error) {
        ObjectNode node = JSON.createObjectNode();
        node.put("class", error.getClass().getName());
        node.put("message", error.getMessage());
        ArrayNode causes = node.putArray("causes");
        for (Throwable cause = error.getCause(); cause != null; cause = cause.getCause()) {
            causes.add(cause.toString());
        }
        java.io.StringWriter trace = new java.io.StringWriter();
        error.printStackTrace(new java.io.PrintWriter(trace));
        node.put("trace", trace.toString());
        return node;
    }

    private Oracle() {
    }
}
