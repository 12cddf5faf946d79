package logwright.oracle.zookeeper;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import logwright.oracle.Answers;
import org.apache.zookeeper.server.SnapshotFormatter;
import org.apache.zookeeper.server.persistence.TxnLogToolkit;

/** The tools that come with ZooKeeper, with what they print. */
final class Tools {
    interface Tool {
        void run() throws Exception;
    }

    static JsonNode snapshotFormatter(JsonNode request, Answers.Items items) throws Exception {
        return printed(() -> new SnapshotFormatter().run(request.path("path").asText(), request.path("data").asBoolean(false), false));
    }

    static JsonNode txnLogToolkit(JsonNode request, Answers.Items items) throws Exception {
        return printed(() -> {
            try (TxnLogToolkit tool = new TxnLogToolkit(false, false, request.path("path").asText(), true)) {
                tool.dump(new java.util.Scanner(""));
            }
        });
    }

    private static JsonNode printed(Tool tool) throws Exception {
        PrintStream before = System.out;
        ByteArrayOutputStream kept = new ByteArrayOutputStream();
        System.setOut(new PrintStream(kept, true, StandardCharsets.UTF_8));
        try {
            tool.run();
        } finally {
            System.out.flush();
            System.setOut(before);
        }
        return Answers.JSON.getNodeFactory().textNode(kept.toString(StandardCharsets.UTF_8));
    }

    private Tools() {
    }
}
