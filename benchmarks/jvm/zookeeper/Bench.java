package logwright.bench.zookeeper;

import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedOutputStream;
import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Scanner;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.zookeeper.server.DataTree;
import org.apache.zookeeper.server.Request;
import org.apache.zookeeper.server.SnapshotFormatter;
import org.apache.zookeeper.server.persistence.FileSnap;
import org.apache.zookeeper.server.persistence.FileTxnLog;
import org.apache.zookeeper.server.persistence.FileTxnSnapLog;
import org.apache.zookeeper.server.persistence.TxnLog;
import org.apache.zookeeper.server.persistence.TxnLogToolkit;

/**
 * How fast ZooKeeper's own classes are: {@code Bench <dataDir> <scratch> <rounds>}, where dataDir has a snapshot and a log in version-2.
 *
 * <p>Prints one JSON object: seconds of processor time by task, garbage collection included, the median of some rounds after one that
 * warms up; and with ".wall" behind the name those that passed. With no rounds the tree is restored once, as it is when a server
 * starts, and the time is that of all of the process.
 */
public final class Bench {
    private interface Task {
        long run() throws Exception;
    }

    private static final OperatingSystemMXBean CLOCK =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private static volatile long sink;

    public static void main(String[] args) throws Exception {
        File data = new File(args[0]);
        File files = new File(data, "version-2");
        File scratch = new File(args[1]);
        int rounds = Integer.parseInt(args[2]);
        StringBuilder out = new StringBuilder("{");
        if (rounds == 0) {
            sink += restored(data);
            add(out, "start", CLOCK.getProcessCpuTime() / 1e9);
            System.out.println(out.append("}"));
            System.exit(0);
        }
        measure(out, "log", rounds, () -> iterated(files));
        measure(out, "deserialize", rounds, () -> loaded(files).getNodeCount());
        measure(out, "restore", rounds, () -> restored(data));
        DataTree tree = loaded(files);
        measure(out, "serialize", rounds, () -> written(tree, scratch));
        List<Request> requests = requests(files);
        measure(out, "append", rounds, () -> appended(requests, scratch));
        requests.clear();
        String snapshot = only(files, "snapshot.");
        String log = only(files, "log.");
        int few = Math.min(rounds, 3);
        measure(out, "formatter", few, () -> printed(() -> new SnapshotFormatter().run(snapshot, false, false)));
        measure(out, "toolkit", few, () -> printed(() -> dumped(log)));
        System.out.println(out.append("}"));
        System.exit(0);
    }

    private static void add(StringBuilder out, String name, double seconds) {
        out.append(out.length() > 1 ? ", " : "").append('"').append(name).append("\": ").append(seconds);
    }

    private static void measure(StringBuilder out, String name, int rounds, Task task) throws Exception {
        double[] taken = new double[rounds];
        double[] waited = new double[rounds];
        for (int round = -1; round < rounds; round++) {
            System.gc();
            long started = CLOCK.getProcessCpuTime();
            long since = System.nanoTime();
            sink += task.run();
            if (round >= 0) {
                taken[round] = (CLOCK.getProcessCpuTime() - started) / 1e9;
                waited[round] = (System.nanoTime() - since) / 1e9;
            }
        }
        Arrays.sort(taken);
        Arrays.sort(waited);
        add(out, name, taken[rounds / 2]);
        add(out, name + ".wall", waited[rounds / 2]);
    }

    /** Each transaction read, its checksum compared, decoded: as a server does it. */
    private static long iterated(File files) throws IOException {
        long count = 0;
        try (TxnLog.TxnIterator found = new FileTxnLog(files).read(1)) {
            do {
                sink += found.getHeader().getZxid();
                count++;
            } while (found.next());
        }
        return count;
    }

    /** What a server would append. */
    private static List<Request> requests(File files) throws IOException {
        List<Request> found = new ArrayList<>();
        try (TxnLog.TxnIterator all = new FileTxnLog(files).read(1)) {
            do {
                found.add(new Request(all.getHeader(), all.getTxn(), all.getDigest()));
            } while (all.next());
        }
        return found;
    }

    /** A log written; nothing waits for the disk. */
    private static long appended(List<Request> requests, File scratch) throws IOException {
        for (File old : scratch.listFiles((folder, name) -> name.startsWith("log."))) {
            Files.delete(old.toPath());
        }
        FileTxnLog log = new FileTxnLog(scratch);
        for (Request request : requests) {
            log.append(request);
        }
        log.commit();
        log.close();
        return requests.size();
    }

    private interface Tool {
        void run() throws Exception;
    }

    /** What a tool prints goes nowhere, through such a buffer as the JVM gives its output. */
    private static long printed(Tool tool) throws Exception {
        PrintStream before = System.out;
        try (PrintStream nowhere = new PrintStream(new BufferedOutputStream(new FileOutputStream("/dev/null"), 8192))) {
            System.setOut(nowhere);
            tool.run();
        } finally {
            System.setOut(before);
        }
        return 1;
    }

    private static void dumped(String log) throws Exception {
        try (TxnLogToolkit tool = new TxnLogToolkit(false, false, log, true)) {
            tool.dump(new Scanner(""));
        }
    }

    private static String only(File files, String prefix) {
        return files.listFiles((folder, name) -> name.startsWith(prefix))[0].getPath();
    }

    private static DataTree loaded(File files) throws IOException {
        DataTree tree = new DataTree();
        new FileSnap(files).deserialize(tree, new ConcurrentHashMap<>());
        return tree;
    }

    private static long restored(File data) throws IOException {
        DataTree tree = new DataTree();
        FileTxnSnapLog files = new FileTxnSnapLog(data, data);
        long zxid = files.restore(tree, new ConcurrentHashMap<>(), (header, txn, digest) -> {});
        files.close();
        return zxid + tree.getNodeCount();
    }

    private static long written(DataTree tree, File scratch) throws IOException {
        Path path = scratch.toPath().resolve("snapshot.1");
        FileSnap snap = new FileSnap(scratch);
        snap.serialize(tree, new ConcurrentHashMap<>(), path.toFile(), false);
        snap.close();
        return Files.size(path);
    }
}
