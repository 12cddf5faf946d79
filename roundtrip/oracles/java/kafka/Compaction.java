package logwright.oracle.kafka;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.lang.reflect.Method;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.function.Supplier;
import logwright.oracle.Answers;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.LogCleanerManager;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/** The log cleaner on one partition. */
final class Compaction {
    private static BrokerTopicStats stats;

    /** A clock that stands still. */
    private record Clock(long now) implements Time {
        @Override
        public long milliseconds() {
            return now;
        }

        @Override
        public long nanoseconds() {
            return now * 1_000_000;
        }

        @Override
        public void sleep(long ms) {
        }

        @Override
        public void waitObject(Object object, Supplier<Boolean> condition, long deadline) {
        }
    }

    /**
     * {"dir", "now", "config", "first_dirty", "dedupe_buffer", "io_buffer", ...}: loads the partition at the time "now", cleans it once and
     * closes it, in place. Done: the offsets of the round, and what the cleaner counted.
     */
    static JsonNode compact(JsonNode request, Answers.Items items) throws Exception {
        Map<String, String> config = new HashMap<>();
        request.path("config").properties().forEach(field -> config.put(field.getKey(), field.getValue().asText()));
        config.put("cleanup.policy", "compact");
        long now = request.get("now").asLong();
        Time clock = new Clock(now);
        if (stats == null) {
            stats = new BrokerTopicStats();
        }
        KafkaScheduler scheduler = new KafkaScheduler(1, true);
        scheduler.startup();
        try {
            UnifiedLog log = UnifiedLog.create(
                new File(request.get("dir").asText()),
                new LogConfig(config),
                request.path("log_start_offset").asLong(0),
                request.path("recovery_point").asLong(0),
                scheduler,
                stats,
                clock,
                15 * 60 * 1000,
                new ProducerStateManagerConfig(request.path("producer_id_expiration_ms").asInt(86_400_000), false),
                10 * 60 * 1000,
                new LogDirFailureChannel(1),
                request.path("clean").asBoolean(false),
                Optional.empty());
            try {
                log.removeExpiredProducers(now);
                log.updateHighWatermark(log.logEndOffset());
                if (request.path("roll").asBoolean(false)) {
                    log.roll();
                }
                return clean(log, request, clock);
            } finally {
                log.close();
            }
        } finally {
            scheduler.shutdown();
        }
    }

    private static ObjectNode clean(UnifiedLog log, JsonNode request, Time clock) throws Exception {
        Optional<Long> first = request.hasNonNull("first_dirty")
            ? Optional.of(request.get("first_dirty").asLong())
            : Optional.empty();
        // Package-private: only the manager's own thread asks.
        Method cleanableOffsets = LogCleanerManager.class.getDeclaredMethod(
            "cleanableOffsets", UnifiedLog.class, Optional.class, long.class);
        cleanableOffsets.setAccessible(true);
        Object offsets = cleanableOffsets.invoke(null, log, first, clock.milliseconds());
        long firstDirty = number(offsets, "firstDirtyOffset");
        LogToClean cleanable = new LogToClean(log, firstDirty, number(offsets, "firstUncleanableDirtyOffset"), true);
        int buffer = request.path("io_buffer").asInt(524_288);
        Cleaner cleaner = new Cleaner(
            0,
            new SkimpyOffsetMap(request.path("dedupe_buffer").asInt(4 << 20)),
            buffer,
            Math.max(buffer, 1 << 30),
            0.9,
            new Throttler(Double.MAX_VALUE, Long.MAX_VALUE, "compaction", "entries", clock),
            clock,
            partition -> { });
        ObjectNode node = Answers.JSON.createObjectNode();
        node.put("first_dirty", firstDirty).put("first_uncleanable", cleanable.firstUncleanableOffset());
        if (cleanable.firstUncleanableOffset() <= firstDirty) {
            // The cleaner's manager does not select such a log: nothing in it can be cleaned.
            return node.put("next_dirty", firstDirty);
        }
        Map.Entry<Long, CleanerStats> done = cleaner.doClean(cleanable, clock.milliseconds());
        node.put("next_dirty", done.getKey());
        node.put("messages_read", done.getValue().messagesRead()).put("messages_written", done.getValue().messagesWritten());
        return node.put("invalid", done.getValue().invalidMessagesRead());
    }

    private static long number(Object record, String name) throws ReflectiveOperationException {
        Method method = record.getClass().getDeclaredMethod(name);
        method.setAccessible(true);
        return (long) method.invoke(record);
    }

    private Compaction() {
    }
}
