package logwright.oracle.kafka;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.io.IOException;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import logwright.oracle.Answers;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.PartitionMetadataFile;
import org.apache.kafka.storage.internals.log.BatchMetadata;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogFileUtils;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.OffsetIndex;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.TimeIndex;
import org.apache.kafka.storage.internals.log.TransactionIndex;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/** A partition directory: the files beside the segments, and Kafka's own loader. */
final class Partition {
    private static BrokerTopicStats stats;

    interface Check {
        void run() throws IOException;
    }

    /** {"dir"}: an item {"file", "checked"} or {"file", "class", "message", ...} for each derived or small file, by name. */
    static JsonNode sanity(JsonNode request, Answers.Items items) throws IOException {
        File[] files = new File(request.get("dir").asText()).listFiles(File::isFile);
        if (files == null) {
            throw new java.io.FileNotFoundException(request.get("dir").asText());
        }
        Arrays.sort(files);
        for (File file : files) {
            Check check = checkOf(file);
            if (check == null) {
                continue;
            }
            ObjectNode node = Answers.JSON.createObjectNode();
            node.put("file", file.getName());
            try {
                check.run();
            } catch (IOException | RuntimeException error) {
                node.setAll(Answers.describe(error));
            }
            items.add(node);
        }
        return null;
    }

    private static Check checkOf(File file) {
        String name = file.getName();
        String suffix = name.substring(name.lastIndexOf('.') + 1);
        return switch (suffix) {
            case "index" -> () -> {
                try (OffsetIndex index = new OffsetIndex(file, LogFileUtils.offsetFromFile(file), -1, false)) {
                    index.sanityCheck();
                }
            };
            case "timeindex" -> () -> {
                try (TimeIndex index = new TimeIndex(file, LogFileUtils.offsetFromFile(file), -1, false)) {
                    index.sanityCheck();
                }
            };
            case "txnindex" -> () -> {
                try (TransactionIndex index = new TransactionIndex(LogFileUtils.offsetFromFile(file), file)) {
                    index.sanityCheck();
                    index.allAbortedTxns();
                }
            };
            case "snapshot" -> () -> ProducerStateManager.readSnapshot(file);
            default -> switch (name) {
                case "leader-epoch-checkpoint" ->
                    () -> new LeaderEpochCheckpointFile(file, new LogDirFailureChannel(1)).read();
                case "partition.metadata" -> () -> new PartitionMetadataFile(file, new LogDirFailureChannel(1)).read();
                case "recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint",
                    "cleaner-offset-checkpoint" -> () -> new OffsetCheckpointFile(file, new LogDirFailureChannel(1)).read();
                default -> null;
            };
        };
    }

    /**
     * {"dir", "clean", "recovery_point", "log_start_offset", "config"}: loads and closes the partition, in place, as a broker
     * does. Done: where the log starts and ends.
     */
    static JsonNode load(JsonNode request, Answers.Items items) throws Exception {
        File dir = new File(request.get("dir").asText());
        Map<String, String> config = new HashMap<>();
        request.path("config").properties().forEach(field -> config.put(field.getKey(), field.getValue().asText()));
        if (stats == null) {
            stats = new BrokerTopicStats();
        }
        KafkaScheduler scheduler = new KafkaScheduler(1, true);
        scheduler.startup();
        try {
            UnifiedLog log = UnifiedLog.create(
                dir,
                new LogConfig(config),
                request.path("log_start_offset").asLong(0),
                request.path("recovery_point").asLong(0),
                scheduler,
                stats,
                Time.SYSTEM,
                15 * 60 * 1000,
                // By default producers that were idle for a day are forgotten: by the clock of now, not of the log.
                new ProducerStateManagerConfig(request.path("producer_id_expiration_ms").asInt(Integer.MAX_VALUE), false),
                10 * 60 * 1000,
                new LogDirFailureChannel(1),
                request.path("clean").asBoolean(false),
                Optional.empty());
            ObjectNode node = Answers.JSON.createObjectNode();
            try {
                node.put("log_start_offset", log.logStartOffset());
                node.put("log_end_offset", log.logEndOffset());
                OptionalLong unstable = OptionalLong.empty();
                if (log.producerStateManager().firstUnstableOffset().isPresent()) {
                    unstable = OptionalLong.of(log.producerStateManager().firstUnstableOffset().get().messageOffset);
                }
                node.put("first_unstable_offset", unstable.isPresent() ? unstable.getAsLong() : null);
                ArrayNode segments = node.putArray("segments");
                for (LogSegment segment : log.logSegments()) {
                    segments.addObject().put("base_offset", segment.baseOffset()).put("size", segment.size());
                }
            } finally {
                log.close();
            }
            return node;
        } finally {
            scheduler.shutdown();
        }
    }

    /** {"cleared", "ids", "removed"}: the order in which a HashMap gives the ids back. */
    static JsonNode hashMapOrder(JsonNode request, Answers.Items items) {
        Map<Long, Boolean> map = new HashMap<>();
        request.path("cleared").forEach(id -> map.put(id.asLong(), true));
        map.clear();
        request.get("ids").forEach(id -> map.put(id.asLong(), true));
        request.path("removed").forEach(id -> map.remove(id.asLong()));
        ArrayNode order = Answers.JSON.createArrayNode();
        map.keySet().forEach(order::add);
        return order;
    }

    /** {"path"}: the entries of a producer snapshot, in file order. */
    static JsonNode readSnapshot(JsonNode request, Answers.Items items) throws IOException {
        ArrayNode all = Answers.JSON.createArrayNode();
        for (ProducerStateEntry entry : ProducerStateManager.readSnapshot(new File(request.get("path").asText()))) {
            ObjectNode node = all.addObject();
            node.put("producer_id", entry.producerId());
            node.put("producer_epoch", entry.producerEpoch());
            Optional<BatchMetadata> batch = entry.batchMetadata().stream().reduce((first, second) -> second);
            node.put("last_sequence", batch.map(BatchMetadata::lastSeq).orElse(-1));
            node.put("last_offset", entry.lastDataOffset());
            node.put("offset_delta", batch.map(BatchMetadata::offsetDelta).orElse(0));
            node.put("timestamp", entry.lastTimestamp());
            node.put("coordinator_epoch", entry.coordinatorEpoch());
            node.put("current_txn_first_offset", entry.currentTxnFirstOffset().orElse(-1));
        }
        return all;
    }

    /** {"path", "entries"}: writes a producer snapshot from entries put into a HashMap in the given order. */
    static JsonNode writeSnapshot(JsonNode request, Answers.Items items) throws IOException, ReflectiveOperationException {
        // Package-private: only the log itself gives an entry its batches.
        Method addBatch = ProducerStateEntry.class.getDeclaredMethod(
            "addBatch", short.class, int.class, long.class, int.class, long.class);
        addBatch.setAccessible(true);
        Map<Long, ProducerStateEntry> entries = new HashMap<>();
        for (JsonNode node : request.get("entries")) {
            long producerId = node.get("producer_id").asLong();
            short epoch = (short) node.path("producer_epoch").asInt(0);
            long timestamp = node.path("timestamp").asLong(-1);
            long first = node.path("current_txn_first_offset").asLong(-1);
            ProducerStateEntry entry = new ProducerStateEntry(
                producerId, epoch, node.path("coordinator_epoch").asInt(-1), timestamp,
                first < 0 ? OptionalLong.empty() : OptionalLong.of(first));
            if (node.path("last_offset").asLong(-1) >= 0) {
                addBatch.invoke(
                    entry, epoch, node.path("last_sequence").asInt(-1), node.get("last_offset").asLong(),
                    node.path("offset_delta").asInt(0), timestamp);
            }
            entries.put(producerId, entry);
        }
        ProducerStateManager.writeSnapshot(new File(request.get("path").asText()), entries, true);
        return null;
    }

    private Partition() {
    }
}
