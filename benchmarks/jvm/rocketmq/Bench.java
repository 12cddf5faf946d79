package logwright.bench.rocketmq;

import java.io.File;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import logwright.bench.Rounds;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.CommitLog;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.PutMessageStatus;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * RocketMQ's own classes, as tasks for {@link Rounds}.
 *
 * <p>{@code Bench STORE SCRATCH LOGSIZE SECONDS} answers the requests of {@code prepare}. STORE is a store directory with commit log files
 * of LOGSIZE bytes.
 */
public final class Bench {
    private static final BrokerStatsManager STATS = new BrokerStatsManager("bench", false);
    private static volatile long sink;

    public static void main(String[] args) throws Exception {
        File store = new File(args[0]);
        File scratch = new File(args[1]);
        int logSize = Integer.parseInt(args[2]);
        Rounds.serve(Double.parseDouble(args[3]), request -> prepare(request[0], store, scratch, logSize));
    }

    private static Rounds.Task prepare(String name, File store, File scratch, int logSize) throws Exception {
        switch (name) {
            case "recover":
                CommitLog checker = made(new File(scratch, "checker"), logSize).getCommitLog();
                return () -> checked(store, checker);
            case "decode":
                return () -> decoded(store);
            case "columns":
                return () -> columns(store);
            case "put":
                DefaultMessageStore target = made(new File(scratch, "put"), logSize);
                target.load();
                target.start();
                List<MessageExt> messages = messages(store);
                return () -> put(target, messages);
            case "rebuild":
                File alone = new File(scratch, "alone");
                Files.createDirectories(alone.toPath().resolve("commitlog"));
                for (File file : logs(store)) {
                    Files.copy(file.toPath(), alone.toPath().resolve("commitlog").resolve(file.getName()));
                }
                return new Rounds.Task() {
                    @Override
                    public void before() {
                        removeDerived(alone);
                    }

                    @Override
                    public long run() throws Exception {
                        return rebuilt(alone, logSize);
                    }
                };
            default:
                throw new IllegalArgumentException(name);
        }
    }

    private static DefaultMessageStore made(File root, int logSize) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root.getPath());
        config.setStorePathCommitLog(root.getPath() + "/commitlog");
        config.setMappedFileSizeCommitLog(logSize);
        config.setHaListenPort(0);
        config.setEnableCompaction(false);
        config.setTimerWheelEnable(false);
        config.setFlushDiskType(FlushDiskType.ASYNC_FLUSH);
        config.setCommitLogRecoverMaxNum(1_000_000);
        config.setDiskMaxUsedSpaceRatio(99);
        return new DefaultMessageStore(config, STATS, (topic, queue, offset, tags, time, bits, properties) -> { }, new BrokerConfig(),
            new ConcurrentHashMap<>());
    }

    private static File[] logs(File store) {
        File[] files = new File(store, "commitlog").listFiles();
        Arrays.sort(files);
        return files;
    }

    private static MappedByteBuffer mapped(File file) throws IOException {
        try (FileChannel channel = FileChannel.open(file.toPath())) {
            return channel.map(FileChannel.MapMode.READ_ONLY, 0, channel.size());
        }
    }

    /** The check of each message in a recovery, with its checksum. */
    private static long checked(File store, CommitLog checker) throws IOException {
        long count = 0;
        for (File file : logs(store)) {
            ByteBuffer buffer = mapped(file);
            while (true) {
                DispatchRequest request = checker.checkMessageAndReturnSize(buffer, true, false);
                if (!request.isSuccess() || request.getMsgSize() <= 0) {
                    break;
                }
                sink += request.getCommitLogOffset();
                count++;
            }
        }
        return count;
    }

    /** Decode all fields, the properties and the body, and verify its checksum, which a client does not do by default. */
    private static long decoded(File store) throws IOException {
        return messages(store, false).size();
    }

    private static List<MessageExt> messages(File store) throws IOException {
        return messages(store, true);
    }

    private static List<MessageExt> messages(File store, boolean keep) throws IOException {
        List<MessageExt> out = new ArrayList<>();
        for (File file : logs(store)) {
            ByteBuffer buffer = mapped(file);
            while (buffer.remaining() > 8 && buffer.getInt(buffer.position() + 4) == MessageDecoder.MESSAGE_MAGIC_CODE) {
                MessageExt message = MessageDecoder.decode(buffer, true, true, false, false, true);
                sink += message.getBody().length;
                out.add(keep ? message : null);
            }
        }
        return out;
    }

    /** A column of values of any size, as Arrow stores it: bytes, and where each value ends. */
    private static final class Column {
        private byte[] data = new byte[1 << 20];
        private int[] ends = new int[1 << 16];
        private int count;

        void add(byte[] value) {
            int start = count == 0 ? 0 : ends[count - 1];
            if (start + value.length > data.length) {
                data = Arrays.copyOf(data, 2 * (start + value.length));
            }
            if (count == ends.length) {
                ends = Arrays.copyOf(ends, 2 * count);
            }
            System.arraycopy(value, 0, data, start, value.length);
            ends[count++] = start + value.length;
        }

        void add(String value) {
            add(value == null ? NOTHING : value.getBytes(StandardCharsets.UTF_8));
        }
    }

    private static final byte[] NOTHING = new byte[0];
    private static final int BATCH = 1 << 14;

    /** Decode as {@link #decoded}, and collect the fields in columns, in batches. The properties are a hash map, so their order is lost. */
    private static long columns(File store) throws IOException {
        long count = 0;
        Column topic = null, tags = null, keys = null, names = null, values = null, body = null;
        long[][] numbers = new long[6][];
        int row = BATCH;
        for (File file : logs(store)) {
            ByteBuffer buffer = mapped(file);
            while (buffer.remaining() > 8 && buffer.getInt(buffer.position() + 4) == MessageDecoder.MESSAGE_MAGIC_CODE) {
                MessageExt message = MessageDecoder.decode(buffer, true, true, false, false, true);
                if (row == BATCH) {
                    topic = new Column();
                    tags = new Column();
                    keys = new Column();
                    names = new Column();
                    values = new Column();
                    body = new Column();
                    numbers = new long[6][BATCH];
                    row = 0;
                }
                topic.add(message.getTopic());
                tags.add(message.getTags());
                keys.add(message.getKeys());
                body.add(message.getBody());
                for (Map.Entry<String, String> property : message.getProperties().entrySet()) {
                    names.add(property.getKey());
                    values.add(property.getValue());
                }
                numbers[0][row] = message.getQueueId();
                numbers[1][row] = message.getQueueOffset();
                numbers[2][row] = message.getCommitLogOffset();
                numbers[3][row] = message.getBornTimestamp();
                numbers[4][row] = message.getStoreTimestamp();
                numbers[5][row] = names.count;
                row++;
                count++;
            }
        }
        sink += body.count;
        return count;
    }

    /** The same messages put into a running store, up to the end of the dispatch to queues and index. Nothing waits for the disk. */
    private static long put(DefaultMessageStore target, List<MessageExt> messages) throws Exception {
        for (MessageExt source : messages) {
            MessageExtBrokerInner message = new MessageExtBrokerInner();
            message.setTopic(source.getTopic());
            message.setQueueId(source.getQueueId());
            message.setBody(source.getBody());
            message.setBornTimestamp(source.getBornTimestamp());
            message.setBornHost(new InetSocketAddress("127.0.0.1", 10000));
            message.setStoreHost(new InetSocketAddress("127.0.0.1", 10911));
            for (Map.Entry<String, String> property : source.getProperties().entrySet()) {
                MessageAccessor.putProperty(message, property.getKey(), property.getValue());
            }
            message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
            PutMessageStatus status = target.putMessage(message).getPutMessageStatus();
            if (status != PutMessageStatus.PUT_OK) {
                throw new IllegalStateException(status.toString());
            }
        }
        while (target.dispatchBehindBytes() > 0) {
            Thread.sleep(1);
        }
        return messages.size();
    }

    /** Queues and index rebuilt from the commit log alone, by loading a store that has nothing else. */
    private static void removeDerived(File alone) {
        for (File file : alone.listFiles()) {
            if (!file.getName().equals("commitlog")) {
                UtilAll.deleteFile(file);
            }
        }
    }

    private static long rebuilt(File alone, int logSize) throws Exception {
        DefaultMessageStore store = made(alone, logSize);
        if (!store.load()) {
            throw new IllegalStateException("the store does not load");
        }
        long count = 0;
        for (var queues : store.getConsumeQueueTable().values()) {
            for (var queue : queues.values()) {
                count += queue.getMaxOffsetInQueue();
            }
        }
        return count;
    }

    private Bench() {
    }
}
