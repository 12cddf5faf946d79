package logwright.bench;

import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
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
import org.apache.kafka.tools.DumpLogSegments;

/**
 * How fast Kafka's own classes are on one core, warm.
 *
 * {@code make DIR RECORDS VALUE_BYTES BATCH_BYTES} writes DIR/CODEC/00000000000000000000.log for each compression.
 * {@code read FILE SECONDS}, {@code dump FILE SECONDS} and {@code build COMPRESSION RECORDS VALUE_BYTES BATCH_BYTES SECONDS}
 * run each task again and again until it gets no faster, and print one JSON object: records or bytes a second.
 */
public final class Bench {
    private static final long T = 1_700_000_000_000L;
    private static final String[] WORDS = {
        "order", "customer", "paid", "shipped", "returned", "amount", "currency", "Europe", "Berlin", "Lisbon", "item",
        "quantity", "warehouse", "courier", "address", "created", "updated", "cancelled", "invoice", "discount", "total",
    };

    /** One run over the input: how many records or bytes it went through. */
    interface Task {
        long run() throws IOException;
    }

    /** Where results go that nobody needs, so that the compiler can't leave the work out. */
    private static volatile long sink;

    public static void main(String[] args) throws IOException {
        PrintStream out = System.out;
        Map<String, Double> rates = new TreeMap<>();
        switch (args[0]) {
            case "make" -> make(Path.of(args[1]), integer(args[2]), integer(args[3]), integer(args[4]));
            case "read" -> read(new File(args[1]), Double.parseDouble(args[2]), rates);
            case "dump" -> dump(args[1], Double.parseDouble(args[2]), rates);
            case "build" -> {
                byte[][] values = values(integer(args[2]), integer(args[3]));
                CompressionType type = CompressionType.forName(args[1]);
                int size = integer(args[4]);
                rates.put("build", rate(() -> build(values, type, size, null), Double.parseDouble(args[5])));
            }
            default -> throw new IllegalArgumentException(args[0]);
        }
        StringBuilder json = new StringBuilder("{");
        rates.forEach((name, rate) -> json.append(json.length() > 1 ? ", " : "")
            .append(String.format(Locale.ROOT, "\"%s\": %.1f", name, rate)));
        out.println(json.append("}"));
    }

    private static int integer(String text) {
        return Integer.parseInt(text);
    }

    /** The best of the runs after which none was better by 2 % for half of the time: units a second. */
    private static double rate(Task task, double seconds) throws IOException {
        double best = 0;
        long end = System.nanoTime() + (long) (seconds * 1e9);
        long last = System.nanoTime();
        while (System.nanoTime() < end || System.nanoTime() - last < seconds * 0.5e9) {
            long start = System.nanoTime();
            long count = task.run();
            double now = count * 1e9 / (System.nanoTime() - start);
            if (now > best * 1.02) {
                last = System.nanoTime();
            }
            best = Math.max(best, now);
        }
        return best;
    }

    // --- reading

    private static void read(File file, double seconds, Map<String, Double> rates) throws IOException {
        try (FileRecords log = FileRecords.open(file, false)) {
            rates.put("crc_scan", rate(() -> {
                for (FileChannelRecordBatch batch : log.batches()) {
                    batch.ensureValid();
                }
                return log.sizeInBytes();
            }, seconds));
            rates.put("crc_scan_memory", rate(crcOf(load(file)), seconds));
            rates.put("read_slices", rate(() -> records(log, false), seconds));
            rates.put("read_copied", rate(() -> records(log, true), seconds));
        }
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

    private static Task crcOf(ByteBuffer all) {
        return () -> {
            for (MutableRecordBatch batch : MemoryRecords.readableRecords(all).batches()) {
                batch.ensureValid();
            }
            return all.limit();
        };
    }

    private static long records(FileRecords log, boolean copied) {
        long count = 0;
        long bytes = 0;
        BufferSupplier buffers = BufferSupplier.create();
        for (FileChannelRecordBatch batch : log.batches()) {
            try (CloseableIterator<Record> records = batch.streamingIterator(buffers)) {
                while (records.hasNext()) {
                    Record record = records.next();
                    bytes += length(record.key(), copied) + length(record.value(), copied);
                    count++;
                }
            }
        }
        sink = bytes;
        return count;
    }

    private static int length(ByteBuffer slice, boolean copied) {
        if (slice == null) {
            return 0;
        }
        if (!copied) {
            return slice.remaining();
        }
        byte[] bytes = new byte[slice.remaining()];
        slice.get(bytes);
        return bytes.length == 0 ? 0 : bytes.length + (bytes[0] & 1);
    }

    private static void dump(String file, double seconds, Map<String, Double> rates) throws IOException {
        long records;
        try (FileRecords log = FileRecords.open(new File(file), false)) {
            records = records(log, false);
        }
        System.setOut(new PrintStream(OutputStream.nullOutputStream(), false, StandardCharsets.UTF_8));
        rates.put("dump", rate(() -> {
            DumpLogSegments.main(new String[] {"--files", file, "--print-data-log"});
            return records;
        }, seconds));
    }

    // --- writing

    private static void make(Path dir, int records, int valueBytes, int batchBytes) throws IOException {
        byte[][] values = values(records, valueBytes);
        for (CompressionType type : CompressionType.values()) {
            File file = dir.resolve(type.name).resolve("00000000000000000000.log").toFile();
            file.getParentFile().mkdirs();
            try (OutputStream out = new java.io.BufferedOutputStream(new FileOutputStream(file), 1 << 20)) {
                build(values, type, batchBytes, out);
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
    private static long build(byte[][] values, CompressionType type, int batchBytes, OutputStream out) throws IOException {
        ByteBuffer buffer = ByteBuffer.allocate(batchBytes);
        Compression compression = Compression.of(type).build();
        long size = 0;
        int next = 0;
        while (next < values.length) {
            buffer.clear();
            try (MemoryRecordsBuilder builder = new MemoryRecordsBuilder(
                    new ByteBufferOutputStream(buffer), RecordBatch.CURRENT_MAGIC_VALUE, compression,
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
