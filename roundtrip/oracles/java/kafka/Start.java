package logwright.oracle.kafka;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import kafka.server.BrokerServer;
import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;
import logwright.oracle.Answers;
import org.apache.kafka.common.utils.Time;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** Starts and stops Kafka's own server in this process, which is faster than a process for each start. */
final class Start {
    /** Milliseconds that the threads of a started server get to take a failed log directory offline. */
    private static final int SETTLE_MS = 200;

    /**
     * {"properties"}: does what {@code kafka.Kafka.main} does, then stops. Done: {"started", "error", "live_dirs", "log"}.
     * The error is that of the constructor or of {@code startup()}, which end the process of a real broker with status 1.
     * Where a fault handler ends the process instead, the error is an {@code ExitCalled} and the log has the exception.
     */
    static JsonNode start(JsonNode request, Answers.Items items) throws Exception {
        Properties properties = new Properties();
        request.get("properties").properties().forEach(entry ->
            properties.setProperty(entry.getKey(), entry.getValue().asText()));
        ObjectNode node = Answers.JSON.createObjectNode();
        ByteArrayOutputStream log = new ByteArrayOutputStream();
        PrintStream err = System.err;
        KafkaRaftServer server = null;
        Oracle.CALLED.clear();
        System.setErr(new PrintStream(log, true, StandardCharsets.UTF_8));
        try {
            server = new KafkaRaftServer(KafkaConfig.fromProps(properties, false), Time.SYSTEM);
            server.startup();
            Thread.sleep(SETTLE_MS);
            if (!Oracle.CALLED.isEmpty()) {
                throw Oracle.CALLED.peek();
            }
            node.put("started", true);
            liveDirs(server, node);
        } catch (Throwable error) {
            node.put("started", false);
            node.set("error", Answers.describe(error));
        } finally {
            node.put("log", log.toString(StandardCharsets.UTF_8));
            if (server != null) {
                try {
                    server.shutdown();
                } catch (Throwable error) {
                    // A server that did not start has less to shut down.
                }
            }
            System.setErr(err);
        }
        return node;
    }

    private static void liveDirs(KafkaRaftServer server, ObjectNode node) throws ReflectiveOperationException {
        Field field = KafkaRaftServer.class.getDeclaredField("broker");
        field.setAccessible(true);
        Option<?> broker = (Option<?>) field.get(server);
        ArrayNode dirs = node.putArray("live_dirs");
        if (broker.isDefined()) {
            for (File dir : CollectionConverters.asJava(((BrokerServer) broker.get()).logManager().liveLogDirs())) {
                dirs.add(dir.getAbsolutePath());
            }
        }
    }

    private Start() {
    }
}
