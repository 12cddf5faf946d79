package logwright.oracle.pulsar;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufUtil;
import io.netty.buffer.Unpooled;
import java.io.IOException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import logwright.oracle.Answers;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.impl.BatchMessageIdImpl;
import org.apache.pulsar.client.impl.MessageIdImpl;
import org.apache.pulsar.client.impl.MessageImpl;
import org.apache.pulsar.common.api.proto.BrokerEntryMetadata;
import org.apache.pulsar.common.api.proto.CompressionType;
import org.apache.pulsar.common.api.proto.EncryptionKeys;
import org.apache.pulsar.common.api.proto.MessageMetadata;
import org.apache.pulsar.common.api.proto.SingleMessageMetadata;
import org.apache.pulsar.common.compression.CompressionCodec;
import org.apache.pulsar.common.compression.CompressionCodecProvider;
import org.apache.pulsar.common.intercept.BrokerEntryMetadataInterceptor;
import org.apache.pulsar.common.protocol.Commands;
import org.apache.pulsar.common.protocol.Commands.ChecksumType;

/** Writes and reads the entries of topics with Pulsar's own classes, as a producer, a broker and a consumer do. */
public final class Oracle {
    private static final HexFormat HEX = HexFormat.of();
    private static final String TOPIC = "persistent://public/default/topic";

    public static void main(String[] args) throws Exception {
        Answers.run(Map.of("write", Oracle::write, "read", Oracle::read));
    }

    // A producer and a broker

    /**
     * Items: the entries of one message or batch, several for a message in chunks.
     *
     * `metadata` has the fields of `MessageMetadata`. The content is `payload`, or the messages in `batch`. It is compressed if `metadata`
     * has a compression, then divided into `chunks`.
     */
    private static JsonNode write(JsonNode request, Answers.Items items) throws Exception {
        MessageMetadata metadata = new MessageMetadata();
        set(metadata, request.path("metadata"));
        ByteBuf content = Unpooled.buffer();
        if (request.has("batch")) {
            for (JsonNode message : request.path("batch")) {
                SingleMessageMetadata single = new SingleMessageMetadata();
                set(single, message.path("metadata"));
                Commands.serializeSingleMessageInBatchWithPayload(single, bytes(message.path("payload")), content);
            }
            metadata.setNumMessagesInBatch(request.path("batch").size());
        } else {
            content.writeBytes(bytes(request.path("payload")));
        }
        if (metadata.hasCompression()) {
            metadata.setUncompressedSize(content.readableBytes());
            content = CompressionCodecProvider.getCompressionCodec(metadata.getCompression()).encode(content);
        }
        int chunks = request.path("chunks").asInt(1);
        int size = content.readableBytes();
        if (chunks > 1) {
            metadata.setUuid("producer-7").setNumChunksFromMsg(chunks).setTotalChunkMsgSize(size);
        }
        for (int i = 0; i < chunks; i++) {
            int start = (int) ((long) size * i / chunks);
            int end = (int) ((long) size * (i + 1) / chunks);
            // A message that is written loses its fields of bytes.
            MessageMetadata own = new MessageMetadata().copyFrom(metadata);
            if (chunks > 1) {
                own.setChunkId(i);
            }
            ChecksumType checksum = request.path("checksum").asBoolean() ? ChecksumType.Crc32c : ChecksumType.None;
            ByteBuf entry = Commands.serializeMetadataAndPayload(
                checksum, own, content.slice(content.readerIndex() + start, end - start));
            if (request.has("broker")) {
                entry = Commands.addBrokerEntryMetadata(entry, Set.of(new Broker(request.path("broker"))), 1);
            }
            items.add(Answers.JSON.getNodeFactory().textNode(ByteBufUtil.hexDump(entry)));
        }
        return Answers.JSON.createObjectNode();
    }

    private record Broker(JsonNode fields) implements BrokerEntryMetadataInterceptor {
        @Override
        public BrokerEntryMetadata intercept(BrokerEntryMetadata metadata) {
            try {
                set(metadata, fields);
            } catch (ReflectiveOperationException error) {
                throw new IllegalArgumentException(error);
            }
            return metadata;
        }

        @Override
        public BrokerEntryMetadata interceptWithNumberOfMessages(BrokerEntryMetadata metadata, int messages) {
            return metadata;
        }
    }

    private static ByteBuf bytes(JsonNode hex) {
        return Unpooled.wrappedBuffer(HEX.parseHex(hex.asText()));
    }

    /** Sets the fields of a message by the names of their setters. Bytes are hexadecimal. */
    private static void set(Object message, JsonNode fields) throws ReflectiveOperationException {
        for (Map.Entry<String, JsonNode> field : fields.properties()) {
            JsonNode value = field.getValue();
            switch (field.getKey()) {
                case "properties" -> {
                    for (JsonNode pair : value) {
                        Object added = message.getClass().getMethod("addProperty").invoke(message);
                        set(added, pair);
                    }
                }
                case "replicate_to" -> value.forEach(name -> ((MessageMetadata) message).addReplicateTo(name.asText()));
                case "encryption_keys" -> {
                    for (JsonNode key : value) {
                        EncryptionKeys added = ((MessageMetadata) message).addEncryptionKey();
                        added.setKey(key.asText()).setValue(new byte[] {1, 2}).addMetadata().setKey("k").setValue("v");
                    }
                }
                default -> setField(message, camel(field.getKey()), value);
            }
        }
    }

    private static void setField(Object message, String name, JsonNode value) throws ReflectiveOperationException {
        for (Method method : message.getClass().getMethods()) {
            if (!method.getName().equals("set" + name) || method.getParameterTypes()[0] == ByteBuf.class) {
                continue;
            }
            Class<?> type = method.getParameterTypes()[0];
            Object argument = type == long.class ? (Object) value.asLong()
                : type == int.class ? (Object) value.asInt()
                : type == boolean.class ? (Object) value.asBoolean()
                : type == byte[].class ? HEX.parseHex(value.asText())
                : type == CompressionType.class ? CompressionType.valueOf(value.asText())
                : value.asText();
            method.invoke(message, argument);
            return;
        }
        throw new NoSuchMethodException(name);
    }

    private static String camel(String name) {
        StringBuilder out = new StringBuilder();
        for (String word : name.split("_")) {
            out.append(Character.toUpperCase(word.charAt(0))).append(word.substring(1));
        }
        return out.toString();
    }

    // A consumer

    /** Items: the messages of an entry. The steps are those of `ConsumerImpl.messageReceived`. */
    private static JsonNode read(JsonNode request, Answers.Items items) throws Exception {
        ByteBuf entry = Unpooled.copiedBuffer(bytes(request.path("entry")));
        BrokerEntryMetadata broker = Commands.parseBrokerEntryMetadataIfExist(entry);
        if (Commands.hasChecksum(entry)) {
            int stored = Commands.readChecksum(entry);
            if (stored != com.scurrilous.circe.checksum.Crc32cIntChecksum.computeChecksum(entry)) {
                throw new IOException("ChecksumMismatch");
            }
        }
        MessageMetadata metadata = new MessageMetadata();
        Commands.parseMessageMetadata(entry, metadata);
        boolean encrypted = metadata.getEncryptionKeysCount() > 0;
        boolean chunk = metadata.hasNumChunksFromMsg() && metadata.getNumChunksFromMsg() > 1;
        if (!encrypted && !chunk) {
            CompressionCodec codec = CompressionCodecProvider.getCompressionCodec(metadata.getCompression());
            entry = codec.decode(entry, metadata.getUncompressedSize());
        }
        List<ObjectNode> messages = new ArrayList<>();
        if (encrypted || !metadata.hasNumMessagesInBatch()) {
            MessageIdImpl id = new MessageIdImpl(3, 4, -1);
            messages.add(json(message(
                MessageImpl.create(TOPIC, id, metadata, entry, Optional.empty(), null, Schema.BYTES, 0, false, -1), broker)));
        } else {
            int size = metadata.getNumMessagesInBatch();
            for (int i = 0; i < size; i++) {
                SingleMessageMetadata single = new SingleMessageMetadata();
                ByteBuf payload = Commands.deSerializeSingleMessageInBatch(entry, single, i, size);
                BatchMessageIdImpl id = new BatchMessageIdImpl(3, 4, -1, i, size, null);
                ObjectNode row = json(message(
                    MessageImpl.create(
                        TOPIC, id, metadata, single, payload, Optional.empty(), null, Schema.BYTES, 0, false, -1),
                    broker));
                row.put("batch_index", i).put("compacted_out", single.isCompactedOut());
                messages.add(row);
            }
        }
        for (ObjectNode message : messages) {
            items.add(message);
        }
        return Answers.JSON.createObjectNode().put("unread", entry.readableBytes());
    }

    private static MessageImpl<byte[]> message(MessageImpl<byte[]> message, BrokerEntryMetadata broker) {
        message.setBrokerEntryMetadata(broker);
        return message;
    }

    /** The message as a consumer sees it, and the fields that only its metadata has. */
    private static ObjectNode json(MessageImpl<byte[]> message) {
        MessageMetadata metadata = message.getMessageBuilder();
        ObjectNode row = Answers.JSON.createObjectNode();
        row.put("producer_name", message.getProducerName()).put("sequence_id", message.getSequenceId());
        row.put("publish_time", message.getPublishTime()).put("event_time", message.getEventTime());
        row.put("deliver_at_time", message.getDeliverAtTime());
        row.put("partition_key", message.getKey()).put("partition_key_b64_encoded", message.hasBase64EncodedKey());
        row.put("null_partition_key", metadata.isNullPartitionKey()).put("null_value", metadata.isNullValue());
        row.put("ordering_key", hex(message.getOrderingKey())).put("payload", hex(message.getData()));
        row.put("schema_version", hex(message.getSchemaVersion())).put("replicated_from", message.getReplicatedFrom());
        ObjectNode properties = row.putObject("properties");
        message.getProperties().forEach(properties::put);
        row.put("index", message.getIndex().orElse(null));
        row.put("broker_timestamp", message.getBrokerPublishTime().orElse(null));
        row.put("compression", metadata.getCompression().name());
        row.put("num_messages_in_batch", metadata.hasNumMessagesInBatch() ? metadata.getNumMessagesInBatch() : null);
        row.put("marker_type", metadata.hasMarkerType() ? metadata.getMarkerType() : null);
        row.put("txnid_most_bits", metadata.hasTxnidMostBits() ? metadata.getTxnidMostBits() : null);
        row.put("txnid_least_bits", metadata.hasTxnidLeastBits() ? metadata.getTxnidLeastBits() : null);
        row.put("highest_sequence_id", metadata.hasHighestSequenceId() ? metadata.getHighestSequenceId() : null);
        row.put("uuid", metadata.hasUuid() ? metadata.getUuid() : null);
        row.put("chunk_id", metadata.hasChunkId() ? metadata.getChunkId() : null);
        row.put("num_chunks_from_msg", metadata.hasNumChunksFromMsg() ? metadata.getNumChunksFromMsg() : null);
        row.put("total_chunk_msg_size", metadata.hasTotalChunkMsgSize() ? metadata.getTotalChunkMsgSize() : null);
        row.put("encryption_algo", metadata.hasEncryptionAlgo() ? metadata.getEncryptionAlgo() : null);
        row.put("encryption_param", metadata.hasEncryptionParam() ? hex(metadata.getEncryptionParam()) : null);
        ArrayNode clusters = row.putArray("replicate_to");
        message.getReplicateTo().forEach(clusters::add);
        ArrayNode keys = row.putArray("encryption_keys");
        metadata.getEncryptionKeysList().forEach(key -> keys.add(key.getKey()));
        return row;
    }

    private static String hex(byte[] data) {
        return data == null ? null : HEX.formatHex(data);
    }

    private Oracle() {
    }
}
