package logwright.bench.bookkeeper;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.stream.Stream;
import logwright.bench.Rounds;
import org.apache.bookkeeper.bookie.DefaultEntryLogger;
import org.apache.bookkeeper.bookie.Journal;
import org.apache.bookkeeper.bookie.LedgerDirsManager;
import org.apache.bookkeeper.bookie.ReadOnlyDefaultEntryLogger;
import org.apache.bookkeeper.bookie.storage.EntryLogScanner;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.util.DiskChecker;
import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.core.config.Configurator;

/**
 * BookKeeper's own classes, as tasks for {@link Rounds}.
 *
 * <p>{@code Bench LEDGERS JOURNALS JOURNAL SCRATCH LOGSIZE SECONDS} answers the requests of {@code prepare}. LEDGERS and JOURNALS are
 * directories of a bookie with one log, 0.log, and one journal with the id JOURNAL. New logs are rolled at LOGSIZE bytes.
 */
public final class Bench {
    private static volatile long sink;

    public static void main(String[] args) throws Exception {
        // The answers are on standard output.
        Configurator.setAllLevels("", Level.OFF);
        File ledgers = new File(args[0]);
        File journals = new File(args[1]);
        long journal = Long.parseLong(args[2]);
        Path scratch = Path.of(args[3]);
        long size = Long.parseLong(args[4]);
        Rounds.serve(Double.parseDouble(args[5]), request -> {
            switch (request[0]) {
                case "scan":
                    return () -> scanned(ledgers);
                case "journal":
                    return () -> replayed(ledgers, journals, journal);
                case "write":
                    List<ByteBuf> entries = entries(ledgers);
                    return () -> written(scratch.resolve("jvm"), size, entries);
                default:
                    throw new IllegalArgumentException(request[0]);
            }
        });
    }

    private static ServerConfiguration configuration(File ledgers) {
        ServerConfiguration conf = new ServerConfiguration();
        conf.setLedgerDirNames(new String[] {ledgers.getPath()});
        return conf;
    }

    /** The scan of garbage collection and of the shell. */
    private static long scanned(File ledgers) throws Exception {
        long[] counts = new long[2];
        DefaultEntryLogger logger = new ReadOnlyDefaultEntryLogger(configuration(ledgers));
        try {
            logger.scanEntryLog(0, new EntryLogScanner() {
                @Override
                public boolean accept(long ledger) {
                    return true;
                }

                @Override
                public void process(long ledger, long offset, ByteBuf entry) {
                    counts[0]++;
                    counts[1] += entry.getLong(entry.readerIndex() + 8) + entry.readableBytes();
                }
            });
        } finally {
            logger.close();
        }
        sink += counts[1];
        return counts[0];
    }

    /** The scan of a start. */
    private static long replayed(File ledgers, File journals, long journal) throws Exception {
        long[] counts = new long[2];
        ServerConfiguration conf = configuration(ledgers);
        LedgerDirsManager manager = new LedgerDirsManager(conf, conf.getLedgerDirs(), new DiskChecker(0.999f, 0.998f));
        new Journal(0, new File(journals, "current"), conf, manager).scanJournal(journal, 0, (version, offset, record) -> {
            counts[0] += record.getLong(record.position() + 8) >= 0 ? 1 : 0;
            counts[1] += record.remaining();
        }, false);
        sink += counts[1];
        return counts[0];
    }

    private static List<ByteBuf> entries(File ledgers) throws Exception {
        List<ByteBuf> entries = new ArrayList<>();
        DefaultEntryLogger logger = new ReadOnlyDefaultEntryLogger(configuration(ledgers));
        logger.scanEntryLog(0, new EntryLogScanner() {
            @Override
            public boolean accept(long ledger) {
                return true;
            }

            @Override
            public void process(long ledger, long offset, ByteBuf entry) {
                entries.add(Unpooled.copiedBuffer(entry));
            }
        });
        logger.close();
        return entries;
    }

    /** Adds entries, whose digests the client has computed, to new logs. */
    private static long written(Path folder, long size, List<ByteBuf> entries) throws Exception {
        delete(folder);
        Files.createDirectories(folder.resolve("current"));
        ServerConfiguration conf = configuration(folder.toFile());
        conf.setEntryLogSizeLimit(size);
        conf.setDiskUsageThreshold(0.999f);
        conf.setDiskUsageWarnThreshold(0.998f);
        DefaultEntryLogger logger = new DefaultEntryLogger(conf);
        try {
            for (ByteBuf entry : entries) {
                sink += logger.addEntry(entry.getLong(entry.readerIndex()), entry.duplicate());
            }
            logger.flush();
        } finally {
            logger.close();
        }
        return entries.size();
    }

    private static void delete(Path folder) throws Exception {
        if (Files.exists(folder)) {
            try (Stream<Path> files = Files.walk(folder)) {
                files.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
            }
        }
    }

    private Bench() {
    }
}
