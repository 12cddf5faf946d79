package logwright.oracle.rocketmq;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import logwright.oracle.Answers;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;
import org.apache.rocketmq.store.MessageArrivingListener;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * One store at a time, loaded by {@link DefaultMessageStore}.
 *
 * <p>The sources are compiled against several releases. What differs between them is called by reflection.
 */
final class Stores {
    private static final int PULL = 32;
    private static final int MOST_KEYS = 64;
    private static final HexFormat HEX = HexFormat.of();
    static final BrokerStatsManager STATS = new BrokerStatsManager("oracle", false);
    private static final MessageArrivingListener NOBODY = (topic, queue, offset, tags, time, bits, properties) -> { };

    private static DefaultMessageStore open;
    private static boolean started;

    /**
     * Loads a store. It stays open until the next request.
     *
     * <p>{@code config}: properties of {@link MessageStoreConfig}. {@code batchTopics}: topics with batch consume queues.
     * {@code start}: also start the services, and wait for the dispatcher. {@code queries}: pairs of topic and key. Items: one per
     * queue, then one per query. With {@code messages}, also one per message.
     */
    static JsonNode load(JsonNode request, Answers.Items items) throws Exception {
        release();
        open = make(request);
        started = false;
        ObjectNode done = Answers.JSON.createObjectNode();
        boolean loaded = open.load();
        done.put("load", loaded);
        if (!loaded) {
            return done;
        }
        if (request.path("start").asBoolean()) {
            open.start();
            started = true;
            settle();
        } else {
            // Reading is refused until the start, which would take seconds.
            Field shutdown = DefaultMessageStore.class.getDeclaredField("shutdown");
            shutdown.setAccessible(true);
            shutdown.setBoolean(open, false);
        }
        done.put("min_phy", open.getMinPhyOffset());
        done.put("max_phy", open.getMaxPhyOffset());
        for (Map.Entry<String, Map<Integer, ?>> topic : queues().entrySet()) {
            for (Integer queue : new TreeMap<>(topic.getValue()).keySet()) {
                items.add(read(topic.getKey(), queue, request.path("messages").asBoolean() ? items : null));
            }
        }
        for (JsonNode query : request.path("queries")) {
            items.add(found(query.get(0).asText(), query.get(1).asText()));
        }
        return done;
    }

    /** Puts messages into the open, started store: {topic, queue_id, body (hex), tags, keys}. */
    static JsonNode put(JsonNode request, Answers.Items items) throws Exception {
        for (JsonNode row : request.path("messages")) {
            items.add(Answers.JSON.getNodeFactory().textNode(putOne(row)));
        }
        settle();
        return Answers.JSON.getNodeFactory().numberNode(open.getMaxPhyOffset());
    }

    /** Shuts the open store down, as a clean stop of a broker does. */
    static JsonNode close(JsonNode request, Answers.Items items) {
        if (open != null) {
            open.shutdown();
            open = null;
        }
        return Answers.JSON.getNodeFactory().nullNode();
    }

    /** Shuts the open store down in the background, because it takes seconds. */
    private static void release() {
        DefaultMessageStore store = open;
        open = null;
        if (store != null) {
            stop(store::shutdown);
        }
    }

    /** Stops something in the background. */
    static void stop(Runnable shutdown) {
        Thread thread = new Thread(() -> {
            try {
                shutdown.run();
            } catch (Throwable error) {
                // Of a store that did not load or that was not started.
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    /** Creates the store that a request describes: {@code root}, {@code config}, {@code batchTopics}. */
    static DefaultMessageStore make(JsonNode request) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        Properties properties = new Properties();
        properties.setProperty("storePathRootDir", request.path("root").asText());
        properties.setProperty("storePathCommitLog", request.path("root").asText() + "/commitlog");
        properties.setProperty("haListenPort", "0");
        properties.setProperty("enableCompaction", "false");
        properties.setProperty("timerWheelEnable", "false");
        for (Map.Entry<String, JsonNode> entry : request.path("config").properties()) {
            properties.setProperty(entry.getKey(), entry.getValue().asText());
        }
        MixAll.properties2Object(properties, config);
        ConcurrentHashMap<String, TopicConfig> topics = new ConcurrentHashMap<>();
        for (JsonNode topic : request.path("batchTopics")) {
            TopicConfig batches = new TopicConfig(topic.asText());
            Method attributes = TopicConfig.class.getMethod("setAttributes", Map.class);
            attributes.invoke(batches, Map.of("queue.type", "BatchCQ"));
            topics.put(topic.asText(), batches);
        }
        Constructor<?> constructor = DefaultMessageStore.class.getConstructors()[0];
        return (DefaultMessageStore) (constructor.getParameterCount() == 4
            ? constructor.newInstance(config, STATS, NOBODY, new BrokerConfig())
            : constructor.newInstance(config, STATS, NOBODY, new BrokerConfig(), topics));
    }

    @SuppressWarnings("unchecked")
    private static Map<String, Map<Integer, ?>> queues() {
        return new TreeMap<>((Map<String, Map<Integer, ?>>) (Map<?, ?>) open.getConsumeQueueTable());
    }

    /** Waits until every message is dispatched. */
    private static void settle() throws InterruptedException {
        while (open.dispatchBehindBytes() > 0) {
            Thread.sleep(10);
        }
    }

    /** Reads a queue as a consumer does: pulls from the first offset to the last. */
    private static ObjectNode read(String topic, int queue, Answers.Items messages) throws Exception {
        long low = open.getMinOffsetInQueue(topic, queue);
        long high = open.getMaxOffsetInQueue(topic, queue);
        ObjectNode out = Answers.JSON.createObjectNode().put("topic", topic).put("queue_id", queue).put("min", low).put("max", high);
        ArrayNode units = out.putArray("units");
        ArrayNode pulls = out.putArray("not_found");
        long offset = low;
        while (offset < high) {
            long next = offset + 1;
            try {
                GetMessageResult pulled = open.getMessage("oracle", topic, queue, offset, PULL, null);
                if (pulled.getStatus() != GetMessageStatus.FOUND) {
                    pulls.addArray().add(offset).add(pulled.getStatus().toString()).add(pulled.getNextBeginOffset());
                }
                add(pulled, units, messages);
                next = Math.max(next, pulled.getNextBeginOffset());
                pulled.release();
            } catch (RuntimeException error) {
                pulls.addArray().add(offset).add(error.getClass().getName()).add(next);
            }
            offset = next;
        }
        return out;
    }

    /** Adds [queue offset or null, physical offset, size, whether a client decodes it] of each message. */
    private static void add(GetMessageResult pulled, ArrayNode units, Answers.Items messages) throws Exception {
        List<?> offsets = (List<?>) called(pulled, "getMessageQueueOffset");
        int i = 0;
        for (SelectMappedBufferResult buffer : pulled.getMessageMapedList()) {
            MessageExt message = decoded(buffer.getByteBuffer().duplicate());
            ArrayNode unit = units.addArray();
            if (offsets == null) {
                unit.addNull();
            } else {
                unit.add((Long) offsets.get(i));
            }
            unit.add(buffer.getStartOffset()).add(buffer.getSize()).add(message != null);
            if (messages != null && message != null) {
                messages.add(described(message));
            }
            i++;
        }
    }

    /** Calls a method that only some releases have; null in the others. */
    private static Object called(Object object, String method) throws Exception {
        try {
            return object.getClass().getMethod(method).invoke(object);
        } catch (NoSuchMethodException old) {
            return null;
        }
    }

    private static MessageExt decoded(ByteBuffer buffer) {
        try {
            return MessageDecoder.decode(buffer, true, false);
        } catch (OutOfMemoryError error) {
            // It allocates as much as a damaged body length says.
            return null;
        }
    }

    private static ObjectNode described(MessageExt message) {
        ObjectNode out = Answers.JSON.createObjectNode()
            .put("topic", message.getTopic())
            .put("queue_id", message.getQueueId())
            .put("queue_offset", message.getQueueOffset())
            .put("physical_offset", message.getCommitLogOffset())
            .put("born_timestamp", message.getBornTimestamp())
            .put("store_timestamp", message.getStoreTimestamp())
            .put("flag", message.getFlag())
            .put("tags", message.getTags())
            .put("keys", message.getKeys())
            .put("body", message.getBody() == null ? null : HEX.formatHex(message.getBody()));
        ObjectNode properties = out.putObject("properties");
        new TreeMap<>(message.getProperties()).forEach(properties::put);
        return out;
    }

    private static ObjectNode found(String topic, String key) throws Exception {
        ObjectNode out = Answers.JSON.createObjectNode().put("topic", topic).put("key", key);
        ArrayNode phys = out.putArray("physical_offsets");
        QueryMessageResult result;
        try {
            result = open.queryMessage(topic, key, MOST_KEYS, 0, Long.MAX_VALUE);
        } catch (OutOfMemoryError error) {
            // The broker decodes messages in a query.
            out.putNull("physical_offsets");
            return out;
        }
        List<?> places = (List<?>) called(result, "getMessageMapedList");
        for (int i = 0; i < result.getMessageBufferList().size(); i++) {
            MessageExt message = decoded(result.getMessageBufferList().get(i).duplicate());
            if (message != null) {
                // Releases 4.x do not tell the place.
                phys.add(places == null ? message.getCommitLogOffset() : ((SelectMappedBufferResult) places.get(i)).getStartOffset());
            }
        }
        result.release();
        return out;
    }

    private static String putOne(JsonNode row) throws Exception {
        String name = "MessageExtBrokerInner";
        Class<?> type;
        try {
            type = Class.forName("org.apache.rocketmq.common.message." + name);
        } catch (ClassNotFoundException old) {
            type = Class.forName("org.apache.rocketmq.store." + name);
        }
        MessageExt message = (MessageExt) type.getConstructor().newInstance();
        message.setTopic(row.path("topic").asText());
        message.setQueueId(row.path("queue_id").asInt());
        message.setBody(HEX.parseHex(row.path("body").asText()));
        message.setBornTimestamp(System.currentTimeMillis());
        message.setBornHost(new InetSocketAddress("127.0.0.1", 10000));
        message.setStoreHost(new InetSocketAddress("127.0.0.1", 10911));
        if (row.hasNonNull("tags")) {
            message.setTags(row.path("tags").asText());
        }
        if (row.hasNonNull("keys")) {
            message.setKeys(row.path("keys").asText());
        }
        type.getMethod("setPropertiesString", String.class)
            .invoke(message, MessageDecoder.messageProperties2String(message.getProperties()));
        Object result = DefaultMessageStore.class.getMethod("putMessage", type).invoke(open, message);
        return result.getClass().getMethod("getPutMessageStatus").invoke(result).toString();
    }

    private Stores() {
    }
}
