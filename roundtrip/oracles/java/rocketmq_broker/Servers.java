package logwright.oracle.rocketmq;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import logwright.oracle.Answers;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.BrokerStartup;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;

/** A name server, a broker and their clients, all in this process, that talk over loopback. */
public final class Servers {
    private static final HexFormat HEX = HexFormat.of();

    private static NamesrvController names;
    private static BrokerController broker;
    private static String address;
    private static String brokerName;

    public static void main(String[] args) throws Exception {
        Answers.run(Map.ofEntries(
            Map.entry("start", Servers::start),
            Map.entry("consume", Servers::consume),
            Map.entry("produce", Servers::produce),
            Map.entry("stop", Servers::stop)));
    }

    /** Starts a name server at `port`, and the broker that the file `broker_conf` configures. */
    static JsonNode start(JsonNode request, Answers.Items items) throws Exception {
        NettyServerConfig server = new NettyServerConfig();
        server.setListenPort(request.path("port").asInt());
        server.setBindAddress("127.0.0.1");
        names = new NamesrvController(new NamesrvConfig(), server);
        if (!names.initialize()) {
            throw new IllegalStateException("the name server does not start");
        }
        names.start();
        address = "127.0.0.1:" + request.path("port").asInt();
        broker = BrokerStartup.createBrokerController(new String[] {"-c", request.path("broker_conf").asText(), "-n", address});
        broker.start();
        brokerName = broker.getBrokerConfig().getBrokerName();
        // Otherwise clients wait for a timer before they learn the topics.
        broker.registerBrokerAll(true, false, true);
        return Answers.JSON.getNodeFactory().nullNode();
    }

    /**
     * Items: the messages that a new consumer group gets from a topic, from its first on, up to `count` of them. It refuses the first
     * `refused`, so that the broker delivers them again later.
     */
    static JsonNode consume(JsonNode request, Answers.Items items) throws Exception {
        BlockingQueue<MessageExt> received = new LinkedBlockingQueue<>();
        AtomicInteger refused = new AtomicInteger(request.path("refused").asInt());
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(request.path("group").asText());
        consumer.setNamesrvAddr(address);
        consumer.setVipChannelEnabled(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(request.path("topic").asText(), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            received.addAll(messages);
            boolean again = refused.getAndDecrement() > 0;
            return again ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            for (int count = request.path("count").asInt(); count > 0; count--) {
                MessageExt message = received.poll(request.path("patience").asInt(), TimeUnit.SECONDS);
                if (message == null) {
                    break;
                }
                items.add(described(message));
            }
        } finally {
            consumer.shutdown();
        }
        return Answers.JSON.getNodeFactory().nullNode();
    }

    private static ObjectNode described(MessageExt message) {
        return Answers.JSON.createObjectNode()
            .put("topic", message.getTopic())
            .put("queue_id", message.getQueueId())
            .put("queue_offset", message.getQueueOffset())
            .put("physical_offset", message.getCommitLogOffset())
            .put("store_timestamp", message.getStoreTimestamp())
            .put("tags", message.getTags())
            .put("keys", message.getKeys())
            .put("body", HEX.formatHex(message.getBody()));
    }

    /**
     * Sends messages {topic, queue_id, tags, keys, body (hex), properties}, each alone, with `batch` as one batch, or with `end` (commit,
     * rollback) in a transaction of its own. Items: their queue offsets, of which a batch and a transaction have one.
     */
    static JsonNode produce(JsonNode request, Answers.Items items) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer("logwright");
        producer.setNamesrvAddr(address);
        producer.setSendMessageWithVIPChannel(false);
        producer.setTransactionListener(new Ends(request.path("end").asText()));
        producer.start();
        try {
            List<Message> batch = new ArrayList<>();
            MessageQueue queue = null;
            for (JsonNode row : request.path("messages")) {
                Message message = message(row);
                findQueues(producer, message.getTopic());
                queue = new MessageQueue(message.getTopic(), brokerName, row.path("queue_id").asInt());
                batch.add(message);
                if (request.has("end")) {
                    items.add(offset(producer.sendMessageInTransaction(message, null)));
                } else if (!request.path("batch").asBoolean()) {
                    items.add(offset(producer.send(message, queue)));
                }
            }
            if (request.path("batch").asBoolean()) {
                items.add(offset(producer.send(batch, queue)));
            }
        } finally {
            producer.shutdown();
        }
        return Answers.JSON.getNodeFactory().nullNode();
    }

    /** Waits until the name server knows a topic: brokers tell it in a thread of their own. */
    private static void findQueues(TransactionMQProducer producer, String topic) throws Exception {
        for (int tries = 0;; tries++) {
            try {
                producer.fetchPublishMessageQueues(topic);
                return;
            } catch (MQClientException error) {
                if (tries == 300) {
                    throw error;
                }
                Thread.sleep(100);
            }
        }
    }

    private static JsonNode offset(SendResult result) {
        return Answers.JSON.getNodeFactory().numberNode(result.getQueueOffset());
    }

    private static Message message(JsonNode row) {
        byte[] body = HEX.parseHex(row.path("body").asText());
        Message message = new Message(row.path("topic").asText(), row.path("tags").asText(), row.path("keys").asText(), body);
        row.path("properties").fields().forEachRemaining(
            property -> MessageAccessor.putProperty(message, property.getKey(), property.getValue().asText()));
        return message;
    }

    /** Ends every transaction alike. */
    private record Ends(String end) implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return end.equals("commit") ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return executeLocalTransaction(message, null);
        }
    }

    /** Stops the broker and the name server cleanly. */
    static JsonNode stop(JsonNode request, Answers.Items items) {
        BrokerStartup.shutdown(broker);
        names.shutdown();
        return Answers.JSON.getNodeFactory().nullNode();
    }

    private Servers() {
    }
}
