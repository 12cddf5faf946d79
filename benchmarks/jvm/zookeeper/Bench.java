package logwright.bench.zookeeper;

import java.io.BufferedOutputStream;
import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Scanner;
import java.util.concurrent.ConcurrentHashMap;
import logwright.bench.Rounds;
import org.apache.zookeeper.server.DataTree;
import org.apache.zookeeper.server.Request;
import org.apache.zookeeper.server.SnapshotFormatter;
import org.apache.zookeeper.server.persistence.FileSnap;
import org.apache.zookeeper.server.persistence.FileTxnLog;
import org.apache.zookeeper.server.persistence.FileTxnSnapLog;
import org.apache.zookeeper.server.persistence.TxnLog;
import org.apache.zookeeper.server.persistence.TxnLogToolkit;

/**
 * ZooKeeper's own classes, as tasks for {@link Rounds}.
 *
 * <p>{@code Bench DATADIR SCRATCH SECONDS} answers the requests of {@code prepare}. DATADIR has one snapshot and one log in version-2.
 * {@code Bench DATADIR} restores the tree once and exits, like the start of a server.
 */
public final class Bench {
    private static volatile long sink;

    public static void main(String[] args) throws Exception {
        File data = new File(args[0]);
        if (args.length == 1) {
            sink += restored(data);
            System.exit(0);
        }
        File files = new File(data, "version-2");
        File scratch = new File(args[1]);
        Rounds.serve(Double.parseDouble(args[2]), request -> prepare(request[0], data, files, scratch));
    }

    private static Rounds.Task prepare(String name, File data, File files, File scratch) throws IOException {
        switch (name) {
            case "log":
                return () -> iterated(files);
            case "deserialize":
                return () -> loaded(files).getNodeCount();
            case "restore":
                return () -> restored(data);
            case "serialize":
                DataTree tree = loaded(files);
                return () -> written(tree, scratch);
            case "append":
                List<Request> requests = requests(files);
                return () -> appended(requests, scratch);
            case "formatter":
                return () -> printed(() -> new SnapshotFormatter().run(only(files, "snapshot."), false, false));
            case "toolkit":
                return () -> printed(() -> dumped(only(files, "log.")));
            default:
                throw new IllegalArgumentException(name);
        }
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
