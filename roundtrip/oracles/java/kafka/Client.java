package logwright.oracle.kafka;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.locks.LockSupport;
import logwright.oracle.Answers;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.LeaderNotAvailableException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** A running broker through the Java clients. Every request has "bootstrap" (host:port) and "timeout_ms". */
final class Client {
    /** How long a partition may be without a leader after the broker has started. */
    private static final Duration LEADERLESS = Duration.ofSeconds(3);

    /** {"name", "partitions", "configs"}. Done: the topic id. */
    static JsonNode createTopic(JsonNode request, Answers.Items items) throws Exception {
        Map<String, String> configs = new HashMap<>();
        request.path("configs").properties().forEach(field -> configs.put(field.getKey(), field.getValue().asText()));
        String name = request.get("name").asText();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", request.get("bootstrap").asText()))) {
            NewTopic topic = new NewTopic(name, request.path("partitions").asInt(1), (short) 1).configs(configs);
            return Answers.JSON.getNodeFactory().textNode(
                admin.createTopics(List.of(topic)).topicId(name).get().toString());
        } catch (ExecutionException error) {
            throw error.getCause() instanceof Exception cause ? cause : error;
        }
    }

    /** {"topic", "partition"}: {"log_start_offset", "high_watermark", "last_stable_offset"}. */
    static JsonNode offsets(JsonNode request, Answers.Items items) {
        TopicPartition partition = partition(request);
        Duration timeout = timeout(request);
        ObjectNode node = Answers.JSON.createObjectNode();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(request, "read_uncommitted")) {
            awaitLeader(consumer, partition, timeout);
            node.put("log_start_offset", consumer.beginningOffsets(List.of(partition), timeout).get(partition));
            node.put("high_watermark", consumer.endOffsets(List.of(partition), timeout).get(partition));
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(request, "read_committed")) {
            node.put("last_stable_offset", consumer.endOffsets(List.of(partition), timeout).get(partition));
        }
        return node;
    }

    /**
     * {"topic", "partition", "isolation", "limit"}: an item for each record, from the log start to the log end (the last
     * stable offset with read_committed). Done: where it started, ended and would have ended, with the error that stopped it.
     */
    static JsonNode consume(JsonNode request, Answers.Items items) throws IOException {
        TopicPartition partition = partition(request);
        Duration timeout = timeout(request);
        long limit = request.path("limit").asLong(Long.MAX_VALUE);
        long count = 0;
        ObjectNode node = Answers.JSON.createObjectNode();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(request, request.path("isolation").asText("read_uncommitted"))) {
            awaitLeader(consumer, partition, timeout);
            long start = consumer.beginningOffsets(List.of(partition), timeout).get(partition);
            long end = consumer.endOffsets(List.of(partition), timeout).get(partition);
            consumer.assign(List.of(partition));
            consumer.seek(partition, start);
            node.put("log_start_offset", start).put("end_offset", end).putNull("error");
            long position = start;
            long heard = System.nanoTime();
            try {
                while (position < end && count < limit) {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(250)).records(partition)) {
                        if (count++ < limit) {
                            items.add(describe(record));
                        }
                    }
                    long now = consumer.position(partition, timeout);
                    if (now != position) {
                        position = now;
                        heard = System.nanoTime();
                    } else if (System.nanoTime() - heard > timeout.toNanos()) {
                        throw new org.apache.kafka.common.errors.TimeoutException("nothing came at offset " + position);
                    }
                }
            } catch (RuntimeException error) {
                node.set("error", Answers.describe(error));
            }
            node.put("position", position);
        }
        return node;
    }

    private static ObjectNode describe(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode node = Answers.JSON.createObjectNode();
        node.put("partition", record.partition());
        node.put("offset", record.offset());
        node.put("timestamp", record.timestamp());
        node.put("timestamp_type", record.timestampType().name);
        Optional<Integer> epoch = record.leaderEpoch();
        node.put("leader_epoch", epoch.isPresent() ? epoch.get() : null);
        node.put("key", Hex.of(record.key()));
        node.put("value", Hex.of(record.value()));
        ArrayNode headers = node.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(Hex.of(header.key().getBytes(StandardCharsets.UTF_8))).add(Hex.of(header.value()));
        }
        return node;
    }

    /** {"topic", "partition", "records", "configs"}: done is the list of offsets given. */
    static JsonNode produce(JsonNode request, Answers.Items items) throws Exception {
        Map<String, Object> configs = new HashMap<>();
        configs.put("bootstrap.servers", request.get("bootstrap").asText());
        configs.put("delivery.timeout.ms", (int) timeout(request).toMillis() + 1000);
        configs.put("request.timeout.ms", (int) timeout(request).toMillis());
        configs.put("max.block.ms", timeout(request).toMillis());
        request.path("configs").properties().forEach(field -> configs.put(field.getKey(), field.getValue().asText()));
        TopicPartition partition = partition(request);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(configs, new ByteArraySerializer(), new ByteArraySerializer())) {
            boolean transaction = configs.containsKey("transactional.id");
            if (transaction) {
                producer.initTransactions();
                producer.beginTransaction();
            }
            for (JsonNode record : request.get("records")) {
                List<Header> headers = new ArrayList<>();
                record.path("headers").forEach(header -> headers.add(new RecordHeader(
                    new String(Hex.bytes(header.get(0)), StandardCharsets.UTF_8), Hex.bytes(header.get(1)))));
                sent.add(producer.send(new ProducerRecord<>(
                    partition.topic(),
                    partition.partition(),
                    record.hasNonNull("timestamp") ? record.get("timestamp").asLong() : null,
                    Hex.bytes(record.get("key")),
                    Hex.bytes(record.get("value")),
                    headers)));
            }
            producer.flush();
            if (transaction && request.path("abort").asBoolean(false)) {
                producer.abortTransaction();
            } else if (transaction) {
                producer.commitTransaction();
            }
        }
        ArrayNode offsets = Answers.JSON.createArrayNode();
        for (Future<RecordMetadata> one : sent) {
            try {
                offsets.add(one.get().offset());
            } catch (ExecutionException error) {
                throw error.getCause() instanceof Exception cause ? cause : error;
            }
        }
        return offsets;
    }

    private static TopicPartition partition(JsonNode request) {
        return new TopicPartition(request.get("topic").asText(), request.path("partition").asInt(0));
    }

    /** A partition whose log directory is offline has no leader, and clients wait for one without end. */
    private static void awaitLeader(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition, Duration timeout) {
        long deadline = System.nanoTime() + Math.min(timeout.toNanos(), LEADERLESS.toNanos());
        while (true) {
            List<PartitionInfo> known = consumer.partitionsFor(partition.topic(), timeout);
            if (known.stream().anyMatch(one -> one.partition() == partition.partition() && one.leader() != null)) {
                return;
            }
            if (System.nanoTime() > deadline) {
                throw new LeaderNotAvailableException("no leader for " + partition + ": its directory is offline or unknown");
            }
            LockSupport.parkNanos(Duration.ofMillis(50).toNanos());
        }
    }

    private static Duration timeout(JsonNode request) {
        return Duration.ofMillis(request.path("timeout_ms").asLong(15_000));
    }

    private static KafkaConsumer<byte[], byte[]> consumer(JsonNode request, String isolation) {
        return new KafkaConsumer<>(
            Map.of(
                "bootstrap.servers", request.get("bootstrap").asText(),
                "isolation.level", isolation,
                "auto.offset.reset", "none",
                "enable.auto.commit", false,
                "fetch.max.wait.ms", 20,
                "max.poll.records", 100_000,
                "max.partition.fetch.bytes", 16 << 20,
                "fetch.max.bytes", 64 << 20),
            new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private Client() {
    }
}
