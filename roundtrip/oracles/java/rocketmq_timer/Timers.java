package logwright.oracle.rocketmq;

import com.fasterxml.jackson.databind.JsonNode;
import java.lang.reflect.Field;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.Map;
import logwright.oracle.Answers;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.timer.TimerCheckpoint;
import org.apache.rocketmq.store.timer.TimerMessageStore;
import org.apache.rocketmq.store.timer.TimerMetrics;
import org.apache.rocketmq.store.timer.TimerWheel;

/** One store at a time with its timer, as a broker loads and starts them. */
public final class Timers {
    private static final HexFormat HEX = HexFormat.of();
    private static final int SLOT = 32;
    private static final int NUMBER = 24;

    private static DefaultMessageStore store;
    private static TimerMessageStore timer;

    public static void main(String[] args) throws Exception {
        Answers.run(Map.ofEntries(
            Map.entry("open", Timers::open),
            Map.entry("put", Timers::put),
            Map.entry("deliver", Timers::deliver),
            Map.entry("drop", Timers::drop)));
    }

    /** Loads a store and its timer, and starts them if both load and {@code start} is set. */
    static JsonNode open(JsonNode request, Answers.Items items) throws Exception {
        drop(request, items);
        String root = request.path("root").asText() + "/config/";
        DefaultMessageStore opened = Stores.make(request);
        TimerMessageStore opening = new TimerMessageStore(
            opened, opened.getMessageStoreConfig(), new TimerCheckpoint(root + "timercheck"), new TimerMetrics(root + "timermetrics"),
            Stores.STATS);
        opening.registerEscapeBridgeHook(message -> opened.putMessage(message));
        opened.setTimerMessageStore(opening);
        store = opened;
        timer = opening;
        boolean loaded = opened.load() && opening.load();
        if (loaded && request.path("start").asBoolean()) {
            opened.start();
            opening.start();
            opening.setShouldRunningDequeue(true);
        }
        return Answers.JSON.getNodeFactory().booleanNode(loaded);
    }

    /** Puts timer messages {topic, body (hex), due, properties}, and waits until the timer has read them. */
    static JsonNode put(JsonNode request, Answers.Items items) throws Exception {
        for (JsonNode row : request.path("messages")) {
            MessageExtBrokerInner message = new MessageExtBrokerInner();
            message.setTopic(TimerMessageStore.TIMER_TOPIC);
            message.setBody(HEX.parseHex(row.path("body").asText()));
            message.setBornTimestamp(System.currentTimeMillis());
            message.setBornHost(new InetSocketAddress("127.0.0.1", 10000));
            message.setStoreHost(new InetSocketAddress("127.0.0.1", 10911));
            MessageAccessor.putProperty(message, MessageConst.PROPERTY_TIMER_OUT_MS, row.path("due").asText());
            MessageAccessor.putProperty(message, MessageConst.PROPERTY_REAL_TOPIC, row.path("topic").asText());
            MessageAccessor.putProperty(message, MessageConst.PROPERTY_REAL_QUEUE_ID, "0");
            for (Map.Entry<String, JsonNode> entry : row.path("properties").properties()) {
                MessageAccessor.putProperty(message, entry.getKey(), entry.getValue().asText());
            }
            message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
            if (!store.putMessage(message).isOk()) {
                throw new IllegalStateException("the store does not accept messages");
            }
        }
        settle();
        return Answers.JSON.getNodeFactory().nullNode();
    }

    private static void settle() throws InterruptedException {
        while (store.dispatchBehindBytes() > 0 || timer.getEnqueueBehindMessages() > 0) {
            Thread.sleep(20);
        }
    }

    /** Waits until the timer has read its queue and, for {@code ms}, delivered. Items: the bodies that a consumer of {@code topic} gets. */
    static JsonNode deliver(JsonNode request, Answers.Items items) throws Exception {
        settle();
        Thread.sleep(request.path("ms").asLong());
        String topic = request.path("topic").asText();
        for (long offset = 0; offset < store.getMaxOffsetInQueue(topic, 0);) {
            GetMessageResult pulled = store.getMessage("oracle", topic, 0, offset, 32, null);
            for (SelectMappedBufferResult buffer : pulled.getMessageMapedList()) {
                MessageExt message = MessageDecoder.decode(buffer.getByteBuffer().duplicate(), true, false);
                items.add(Answers.JSON.getNodeFactory().textNode(HEX.formatHex(message.getBody())));
            }
            offset = Math.max(offset + 1, pulled.getNextBeginOffset());
            pulled.release();
        }
        return Answers.JSON.createObjectNode().put("pending", pending());
    }

    /** The number of messages in the slots that are still to be read. */
    private static long pending() throws ReflectiveOperationException {
        Field field = TimerWheel.class.getDeclaredField("byteBuffer");
        field.setAccessible(true);
        ByteBuffer wheel = ((ByteBuffer) field.get(timer.getTimerWheel())).duplicate().clear();
        long now = System.currentTimeMillis() / timer.getPrecisionMs();
        long count = 0;
        for (int at = 0; at < wheel.capacity(); at += SLOT) {
            count += wheel.getLong(at) > now ? wheel.getInt(at + NUMBER) : 0;
        }
        return count;
    }

    /** Stops the open store in the background, because it takes seconds. */
    static JsonNode drop(JsonNode request, Answers.Items items) {
        DefaultMessageStore dropped = store;
        TimerMessageStore stopped = timer;
        store = null;
        timer = null;
        if (dropped != null) {
            Stores.stop(() -> {
                stopped.shutdown();
                dropped.shutdown();
            });
        }
        return Answers.JSON.getNodeFactory().nullNode();
    }

    private Timers() {
    }
}
