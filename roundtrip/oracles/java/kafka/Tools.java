package logwright.oracle.kafka;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import logwright.oracle.Answers;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.metadata.ConfigRecord;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.metadata.bootstrap.BootstrapDirectory;
import org.apache.kafka.metadata.bootstrap.BootstrapMetadata;
import org.apache.kafka.metadata.storage.Formatter;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.Feature;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.tools.DumpLogSegments;

/** Kafka's command line tools. */
final class Tools {
    /** {"args"}: runs DumpLogSegments. Done: {"out", "err", "status"}. */
    static JsonNode dump(JsonNode request, Answers.Items items) throws IOException {
        List<String> args = new ArrayList<>();
        request.get("args").forEach(arg -> args.add(arg.asText()));
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        PrintStream oldOut = System.out;
        PrintStream oldErr = System.err;
        int status = 0;
        try (PrintStream newOut = new PrintStream(out, false, StandardCharsets.UTF_8);
             PrintStream newErr = new PrintStream(err, false, StandardCharsets.UTF_8)) {
            System.setOut(newOut);
            System.setErr(newErr);
            DumpLogSegments.main(args.toArray(new String[0]));
        } catch (Oracle.ExitCalled exit) {
            status = exit.status;
        } catch (IOException | RuntimeException error) {
            // The tool itself dies of it, with this text.
            err.writeBytes(("Exception in thread \"main\" " + error + "\n").getBytes(StandardCharsets.UTF_8));
            status = 1;
        } finally {
            System.setOut(oldOut);
            System.setErr(oldErr);
        }
        ObjectNode node = Answers.JSON.createObjectNode();
        node.put("out", out.toString(StandardCharsets.UTF_8));
        node.put("err", err.toString(StandardCharsets.UTF_8));
        node.put("status", status);
        return node;
    }

    /**
     * {"node_id", "cluster_id", "metadata_dir", "dirs", "topics": [{"name", "id", "configs",
     * "partitions": {number: {"directory", "leader_epoch"}}}]}: formats the directories that are not yet. The topics go into the bootstrap records, so that the first start knows them already.
     */
    static JsonNode format(JsonNode request, Answers.Items items) throws Exception {
        String metadata = request.get("metadata_dir").asText();
        List<String> dirs = new ArrayList<>(List.of(metadata));
        request.get("dirs").forEach(dir -> dirs.add(dir.asText()));
        int node = request.get("node_id").asInt();
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        new Formatter()
            .setPrintStream(new PrintStream(said, true, StandardCharsets.UTF_8))
            .setSupportedFeatures(Feature.PRODUCTION_FEATURES)
            .setNodeId(node)
            .setClusterId(request.get("cluster_id").asText())
            .setDirectories(dirs)
            .setMetadataLogDirectory(metadata)
            .setReleaseVersion(MetadataVersion.latestProduction())
            .setControllerListenerName("CONTROLLER")
            .setIgnoreFormatted(true)
            .run();
        if (!request.path("topics").isEmpty()) {
            BootstrapDirectory bootstrap = new BootstrapDirectory(metadata);
            BootstrapMetadata old = bootstrap.read();
            List<ApiMessageAndVersion> records = new ArrayList<>(old.records());
            for (JsonNode topic : request.get("topics")) {
                addTopic(records, topic, node, old.metadataVersion());
            }
            bootstrap.writeBinaryFile(BootstrapMetadata.fromRecords(records, old.source()));
        }
        return Answers.JSON.createObjectNode().put("said", said.toString(StandardCharsets.UTF_8));
    }

    private static void addTopic(List<ApiMessageAndVersion> records, JsonNode topic, int node, MetadataVersion version) {
        String name = topic.get("name").asText();
        Uuid id = Uuid.fromString(topic.get("id").asText());
        add(records, new TopicRecord().setName(name).setTopicId(id), (short) 0);
        topic.path("configs").properties().forEach(config -> add(records, new ConfigRecord()
            .setResourceType(ConfigResource.Type.TOPIC.id())
            .setResourceName(name)
            .setName(config.getKey())
            .setValue(config.getValue().asText()), (short) 0));
        topic.get("partitions").properties().forEach(partition -> add(records, new PartitionRecord()
            .setPartitionId(Integer.parseInt(partition.getKey()))
            .setTopicId(id)
            .setReplicas(List.of(node))
            .setIsr(List.of(node))
            .setLeader(node)
            .setLeaderEpoch(partition.getValue().get("leader_epoch").asInt())
            .setPartitionEpoch(0)
            .setDirectories(List.of(Uuid.fromString(partition.getValue().get("directory").asText()))), version.partitionRecordVersion()));
    }

    private static void add(List<ApiMessageAndVersion> records, ApiMessage message, short version) {
        records.add(new ApiMessageAndVersion(message, version));
    }

    private Tools() {
    }
}
