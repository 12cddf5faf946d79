package logwright.oracle.kafka;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import logwright.oracle.Answers;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.FileLogInputStream.FileChannelRecordBatch;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.LegacyRecord;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.ByteBufferOutputStream;
import org.apache.kafka.common.utils.CloseableIterator;

/** Log segments: what FileRecords reads, and what MemoryRecordsBuilder writes. */
final class Segments {
    /** {"path", "records"}: an item for each batch. Done: {"size"} of the file. Damage ends it with Kafka's own error. */
    static JsonNode batches(JsonNode request, Answers.Items items) throws IOException {
        boolean records = request.path("records").asBoolean(true);
        try (FileRecords log = FileRecords.open(new File(request.get("path").asText()), false)) {
            for (FileChannelRecordBatch batch : log.batches()) {
                items.add(describe(batch, records));
            }
            return Answers.JSON.createObjectNode().put("size", log.sizeInBytes());
        }
    }

    private static ObjectNode describe(FileChannelRecordBatch batch, boolean withRecords) {
        ByteBuffer bytes = ByteBuffer.allocate(batch.sizeInBytes());
        batch.writeTo(bytes);
        bytes.flip();
        boolean current = batch.magic() >= RecordBatch.MAGIC_VALUE_V2;
        ObjectNode node = Answers.JSON.createObjectNode();
        node.put("position", batch.position());
        node.put("size", batch.sizeInBytes());
        node.put("magic", batch.magic());
        node.put("base_offset", batch.baseOffset());
        node.put("last_offset", batch.lastOffset());
        node.put("crc", batch.checksum());
        node.put("is_valid", batch.isValid());
        node.put("attributes", current ? bytes.getShort(21) : bytes.get(17));
        node.put("compression", batch.compressionType().name);
        node.put("timestamp_type", batch.timestampType().name);
        node.put("max_timestamp", batch.maxTimestamp());
        node.put("partition_leader_epoch", batch.partitionLeaderEpoch());
        node.put("producer_id", batch.producerId());
        node.put("producer_epoch", batch.producerEpoch());
        node.put("base_sequence", batch.baseSequence());
        node.put("last_sequence", batch.lastSequence());
        node.put("is_transactional", batch.isTransactional());
        node.put("is_control", batch.isControlBatch());
        node.put("records_count", batch.countOrNull());
        if (batch.deleteHorizonMs().isPresent()) {
            node.put("delete_horizon_ms", batch.deleteHorizonMs().getAsLong());
        } else {
            node.putNull("delete_horizon_ms");
        }
        if (current) {
            for (MutableRecordBatch one : MemoryRecords.readableRecords(bytes).batches()) {
                node.put("base_timestamp", ((DefaultRecordBatch) one).baseTimestamp());
            }
        } else {
            node.putNull("base_timestamp");
        }
        if (withRecords) {
            ArrayNode records = node.putArray("records");
            try (CloseableIterator<Record> all = batch.streamingIterator(BufferSupplier.create())) {
                while (all.hasNext()) {
                    records.add(describe(all.next(), batch.isControlBatch()));
                }
            } catch (RuntimeException error) {
                node.set("error", Answers.describe(error));
            }
        }
        return node;
    }

    private static ObjectNode describe(Record record, boolean control) {
        ObjectNode node = Answers.JSON.createObjectNode();
        node.put("offset", record.offset());
        node.put("timestamp", record.timestamp());
        node.put("sequence", record.sequence());
        node.put("size", record.sizeInBytes());
        node.put("key", Hex.of(record.key()));
        node.put("value", Hex.of(record.value()));
        ArrayNode headers = node.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(Hex.of(header.key().getBytes(StandardCharsets.UTF_8))).add(Hex.of(header.value()));
        }
        if (control) {
            ControlRecordType type = ControlRecordType.parse(record.key());
            node.put("control_type", type.name());
            if (type == ControlRecordType.ABORT || type == ControlRecordType.COMMIT) {
                node.put("coordinator_epoch", EndTransactionMarker.deserialize(record).coordinatorEpoch());
            }
        }
        return node;
    }

    /** {"path"}: done counts what is in a log, every record read: records, batches, last_offset, valid, digest of keys and values. */
    static JsonNode summary(JsonNode request, Answers.Items items) throws IOException {
        long records = 0, batches = 0, last = -1;
        boolean valid = true;
        java.util.zip.CRC32C digest = new java.util.zip.CRC32C();
        try (FileRecords log = FileRecords.open(new File(request.get("path").asText()), false)) {
            for (RecordBatch batch : log.batches()) {
                batches++;
                valid &= batch.isValid();
                for (Record record : batch) {
                    records++;
                    last = record.offset();
                    if (record.hasKey()) {
                        digest.update(record.key());
                    }
                    if (record.hasValue()) {
                        digest.update(record.value());
                    }
                }
            }
        }
        ObjectNode done = Answers.JSON.createObjectNode();
        done.put("records", records).put("batches", batches).put("last_offset", last).put("valid", valid);
        return done.put("digest", digest.getValue());
    }

    /** {"batches": [spec]}: done is the bytes in hex. The fields of a spec are described beside the Python function. */
    static JsonNode build(JsonNode request, Answers.Items items) throws IOException {
        java.io.ByteArrayOutputStream all = new java.io.ByteArrayOutputStream();
        for (JsonNode spec : request.get("batches")) {
            ByteBuffer bytes = build(spec).buffer();
            all.write(bytes.array(), bytes.arrayOffset() + bytes.position(), bytes.remaining());
        }
        return Answers.JSON.getNodeFactory().textNode(Hex.of(all.toByteArray()));
    }

    private static MemoryRecords build(JsonNode spec) throws IOException {
        byte magic = (byte) spec.path("magic").asInt(RecordBatch.CURRENT_MAGIC_VALUE);
        TimestampType type = spec.hasNonNull("timestamp_type")
            ? TimestampType.forName(spec.get("timestamp_type").asText())
            : magic == RecordBatch.MAGIC_VALUE_V0 ? TimestampType.NO_TIMESTAMP_TYPE : TimestampType.CREATE_TIME;
        boolean control = spec.hasNonNull("control");
        ByteBufferOutputStream stream = new ByteBufferOutputStream(spec.path("buffer").asInt(1024));
        try (MemoryRecordsBuilder builder = new MemoryRecordsBuilder(
                stream,
                magic,
                compression(spec),
                type,
                spec.path("base_offset").asLong(0),
                spec.path("log_append_time").asLong(RecordBatch.NO_TIMESTAMP),
                spec.path("producer_id").asLong(RecordBatch.NO_PRODUCER_ID),
                (short) spec.path("producer_epoch").asInt(RecordBatch.NO_PRODUCER_EPOCH),
                spec.path("base_sequence").asInt(RecordBatch.NO_SEQUENCE),
                spec.path("is_transactional").asBoolean(false),
                control,
                spec.path("partition_leader_epoch").asInt(RecordBatch.NO_PARTITION_LEADER_EPOCH),
                Integer.MAX_VALUE,
                spec.path("delete_horizon_ms").asLong(RecordBatch.NO_TIMESTAMP))) {
            if (control) {
                control(builder, spec.get("control"));
            } else {
                long offset = spec.path("base_offset").asLong(0);
                for (JsonNode record : spec.path("records")) {
                    offset = record.path("offset").asLong(offset);
                    append(builder, magic, offset, record);
                    offset++;
                }
            }
            if (spec.hasNonNull("last_offset")) {
                builder.overrideLastOffset(spec.get("last_offset").asLong());
            }
            return builder.build();
        }
    }

    private static void append(MemoryRecordsBuilder builder, byte magic, long offset, JsonNode record) throws IOException {
        long timestamp = record.path("timestamp").asLong(RecordBatch.NO_TIMESTAMP);
        ByteBuffer key = Hex.buffer(record.get("key"));
        ByteBuffer value = Hex.buffer(record.get("value"));
        if (magic < RecordBatch.MAGIC_VALUE_V2) {
            // Unchecked: the checked way refuses a timestamp of -1 in magic 1, which old clients wrote.
            byte[] keyBytes = Hex.bytes(record.get("key"));
            byte[] valueBytes = Hex.bytes(record.get("value"));
            builder.appendUncheckedWithOffset(offset, LegacyRecord.create(magic, timestamp, keyBytes, valueBytes));
            return;
        }
        JsonNode list = record.path("headers");
        Header[] headers = new Header[list.size()];
        for (int i = 0; i < headers.length; i++) {
            headers[i] = new RecordHeader(
                new String(Hex.bytes(list.get(i).get(0)), StandardCharsets.UTF_8), Hex.bytes(list.get(i).get(1)));
        }
        builder.appendUncheckedWithOffset(offset, new SimpleRecord(timestamp, key, value, headers));
    }

    private static void control(MemoryRecordsBuilder builder, JsonNode control) {
        ControlRecordType type = ControlRecordType.valueOf(control.get("type").asText());
        long timestamp = control.path("timestamp").asLong(RecordBatch.NO_TIMESTAMP);
        if (control.hasNonNull("value")) {
            builder.appendControlRecord(timestamp, type, Hex.buffer(control.get("value")));
        } else {
            int epoch = control.path("coordinator_epoch").asInt(0);
            builder.appendEndTxnMarker(timestamp, new EndTransactionMarker(type, epoch));
        }
    }

    static Compression compression(JsonNode spec) {
        CompressionType type = CompressionType.forName(spec.path("compression").asText("none"));
        if (!spec.hasNonNull("level")) {
            return Compression.of(type).build();
        }
        int level = spec.get("level").asInt();
        return switch (type) {
            case GZIP -> Compression.gzip().level(level).build();
            case LZ4 -> Compression.lz4().level(level).build();
            case ZSTD -> Compression.zstd().level(level).build();
            default -> throw new IllegalArgumentException(type.name + " has no levels");
        };
    }

    private Segments() {
    }
}
