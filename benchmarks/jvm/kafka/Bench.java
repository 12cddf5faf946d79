package logwright.bench;

import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Arrays;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.FileLogInputStream.FileChannelRecordBatch;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.ByteBufferOutputStream;
import org.apache.kafka.common.utils.CloseableIterator;

/**
 * Kafka's own classes, as tasks for {@link Rounds}.
 *
 * <p>{@code make DIR RECORDS VALUE_BYTES BATCH_BYTES} writes DIR/CODEC/00000000000000000000.log for each compression, and
 * DIR/CODEC-magicM/00000000000000000000.log of the older messages.
 * {@code serve SECONDS} answers these requests: {@code crc_scan FILE}, {@code crc_scan_memory FILE}, {@code read_copied FILE},
 * {@code build COMPRESSION RECORDS VALUE_BYTES BATCH_BYTES}.
 */
public final class Bench {
    private static final long T = 1_700_000_000_000L;
    private static final String[] WORDS = {
        "order", "customer", "paid", "shipped", "returned", "amount", "currency", "Europe", "Berlin", "Lisbon", "item",
        "quantity", "warehouse", "courier", "address", "created", "updated", "cancelled", "invoice", "discount", "total",
    };

    /** Unused results are stored here, so that the compiler cannot remove the work. */
    private static volatile long sink;

    public static void main(String[] args) throws Exception {
        if (args[0].equals("make")) {
            make(Path.of(args[1]), integer(args[2]), integer(args[3]), integer(args[4]));
        } else {
            Rounds.serve(Double.parseDouble(args[1]), Bench::prepare);
        }
    }

    private static int integer(String text) {
        return Integer.parseInt(text);
    }

    private static Rounds.Task prepare(String[] request) throws IOException {
        switch (request[0]) {
            case "crc_scan":
                return crcOf(FileRecords.open(new File(request[1]), false));
            case "crc_scan_memory":
                return crcOf(load(new File(request[1])));
            case "read_copied":
                FileRecords log = FileRecords.open(new File(request[1]), false);
                return () -> records(log);
            case "build":
                byte[][] values = values(integer(request[2]), integer(request[3]));
                CompressionType type = CompressionType.forName(request[1]);
                int size = integer(request[4]);
                return () -> build(values, type, RecordBatch.CURRENT_MAGIC_VALUE, size, null);
            default:
                throw new IllegalArgumentException(request[0]);
        }
    }

    // --- reading

    private static Rounds.Task crcOf(FileRecords log) {
        return () -> {
            for (FileChannelRecordBatch batch : log.batches()) {
                batch.ensureValid();
            }
            return log.sizeInBytes();
        };
    }

    private static ByteBuffer load(File file) throws IOException {
        try (FileChannel channel = FileChannel.open(file.toPath())) {
            ByteBuffer all = ByteBuffer.allocate((int) channel.size());
            while (all.hasRemaining() && channel.read(all) >= 0) {
                continue;
            }
            return all.flip();
        }
    }

    private static Rounds.Task crcOf(ByteBuffer all) {
        return () -> {
            for (MutableRecordBatch batch : MemoryRecords.readableRecords(all).batches()) {
                batch.ensureValid();
            }
            return all.limit();
        };
    }

    /**
     * Every record; key and value are copied into arrays. Checksums are verified as a consumer verifies them ({@code CompletedFetch}, with
     * {@code check.crcs}, which is the default): those of batches of magic 2, and those of older messages, one by one.
     */
    private static long records(FileRecords log) {
        long count = 0;
        long bytes = 0;
        BufferSupplier buffers = BufferSupplier.create();
        for (FileChannelRecordBatch batch : log.batches()) {
            if (batch.magic() >= RecordBatch.MAGIC_VALUE_V2) {
                batch.ensureValid();
            }
            try (CloseableIterator<Record> records = batch.streamingIterator(buffers)) {
                while (records.hasNext()) {
                    Record record = records.next();
                    record.ensureValid();
                    bytes += copied(record.key()) + copied(record.value());
                    count++;
                }
            }
        }
        sink = bytes;
        return count;
    }

    private static int copied(ByteBuffer slice) {
        if (slice == null) {
            return 0;
        }
        byte[] bytes = new byte[slice.remaining()];
        slice.get(bytes);
        return bytes.length == 0 ? 0 : bytes.length + (bytes[0] & 1);
    }

    // --- writing

    private static void make(Path dir, int records, int valueBytes, int batchBytes) throws IOException {
        byte[][] values = values(records, valueBytes);
        for (CompressionType type : CompressionType.values()) {
            for (byte magic = type == CompressionType.ZSTD ? RecordBatch.CURRENT_MAGIC_VALUE : 0; magic <= RecordBatch.CURRENT_MAGIC_VALUE; magic++) {
                String folder = magic == RecordBatch.CURRENT_MAGIC_VALUE ? type.name : type.name + "-magic" + magic;
                File file = dir.resolve(folder).resolve("00000000000000000000.log").toFile();
                file.getParentFile().mkdirs();
                try (OutputStream out = new java.io.BufferedOutputStream(new FileOutputStream(file), 1 << 20)) {
                    build(values, type, magic, batchBytes, out);
                }
            }
        }
    }

    /** Text that compresses about as well as business events do: words, and digits that don't repeat. */
    private static byte[][] values(int count, int size) {
        java.util.Random dice = new java.util.Random(7);
        byte[][] values = new byte[count][];
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < count; i++) {
            text.setLength(0);
            text.append(i).append(' ').append(Long.toHexString(dice.nextLong())).append(' ');
            while (text.length() < size) {
                text.append(WORDS[dice.nextInt(WORDS.length)]).append(' ');
            }
            values[i] = Arrays.copyOf(text.toString().getBytes(StandardCharsets.UTF_8), size);
        }
        return values;
    }

    /** As a producer does: batches of at most `batchBytes` before compression, one reused buffer. */
    private static long build(byte[][] values, CompressionType type, byte magic, int batchBytes, OutputStream out)
            throws IOException {
        ByteBuffer buffer = ByteBuffer.allocate(batchBytes);
        Compression compression = Compression.of(type).build();
        long size = 0;
        int next = 0;
        while (next < values.length) {
            buffer.clear();
            try (MemoryRecordsBuilder builder = new MemoryRecordsBuilder(
                    new ByteBufferOutputStream(buffer), magic, compression,
                    TimestampType.CREATE_TIME, next, RecordBatch.NO_TIMESTAMP, RecordBatch.NO_PRODUCER_ID,
                    RecordBatch.NO_PRODUCER_EPOCH, RecordBatch.NO_SEQUENCE, false, false, 0, batchBytes)) {
                do {
                    builder.append(T + next, null, values[next], Record.EMPTY_HEADERS);
                    next++;
                } while (next < values.length && builder.hasRoomFor(T, null, values[next], Record.EMPTY_HEADERS));
                MemoryRecords built = builder.build();
                size += built.sizeInBytes();
                if (out != null) {
                    ByteBuffer bytes = built.buffer();
                    out.write(bytes.array(), bytes.arrayOffset() + bytes.position(), bytes.remaining());
                }
            }
        }
        sink = size;
        return values.length;
    }

    private Bench() {
    }
}
