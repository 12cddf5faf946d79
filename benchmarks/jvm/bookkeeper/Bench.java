package logwright.bench.bookkeeper;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.buffer.UnpooledByteBufAllocator;
import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.stream.Stream;
import logwright.bench.Rounds;
import org.apache.bookkeeper.bookie.BookieImpl;
import org.apache.bookkeeper.bookie.DefaultEntryLogger;
import org.apache.bookkeeper.bookie.InterleavedLedgerStorage;
import org.apache.bookkeeper.bookie.Journal;
import org.apache.bookkeeper.bookie.LedgerDirsManager;
import org.apache.bookkeeper.bookie.LedgerStorage;
import org.apache.bookkeeper.bookie.ReadOnlyDefaultEntryLogger;
import org.apache.bookkeeper.bookie.storage.EntryLogScanner;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.proto.LedgerMetadataFormat.DigestType;
import org.apache.bookkeeper.proto.checksum.DigestManager;
import org.apache.bookkeeper.util.ByteBufList;
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
    /** Bytes of an entry before the payload: its numbers and a CRC32C. */
    private static final int HEAD = 36;
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
                case "client":
                    List<Payload> sent = payloads(ledgers);
                    return () -> packaged(scratch.resolve("jvm"), size, sent);
                case "bookie":
                    List<Payload> added = payloads(ledgers);
                    return () -> stored(scratch.resolve("jvm"), size, added);
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

    private static DefaultEntryLogger logger(Path folder, long size) throws Exception {
        delete(folder);
        Files.createDirectories(folder.resolve("current"));
        ServerConfiguration conf = configuration(folder.toFile());
        conf.setEntryLogSizeLimit(size);
        conf.setDiskUsageThreshold(0.999f);
        conf.setDiskUsageWarnThreshold(0.998f);
        return new DefaultEntryLogger(conf);
    }

    /** Adds entries, whose digests the client has computed, to new logs. */
    private static long written(Path folder, long size, List<ByteBuf> entries) throws Exception {
        DefaultEntryLogger logger = logger(folder, size);
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

    /** An entry as an application passes it to a client. */
    private record Payload(long ledger, long entry, ByteBuf content) {
    }

    private static List<Payload> payloads(File ledgers) throws Exception {
        List<Payload> payloads = new ArrayList<>();
        for (ByteBuf entry : entries(ledgers)) {
            ByteBuf content = Unpooled.copiedBuffer(entry.slice(HEAD, entry.readableBytes() - HEAD));
            payloads.add(new Payload(entry.getLong(0), entry.getLong(8), content));
        }
        return payloads;
    }

    /** The client's half of an added entry: the numbers and the digest. The result is in one piece, as after the network. */
    private static final class Client {
        private static final byte[] PASSWORD = {};
        private final Map<Long, DigestManager> digests = new HashMap<>();
        private final Map<Long, Long> lengths = new HashMap<>();
        private final byte[] key = DigestManager.generateMasterKey(PASSWORD);

        Client() throws Exception {
        }

        ByteBuf entry(Payload payload) throws Exception {
            long ledger = payload.ledger();
            DigestManager digest = digests.get(ledger);
            if (digest == null) {
                digest = DigestManager.instantiate(ledger, PASSWORD, DigestType.CRC32C, UnpooledByteBufAllocator.DEFAULT, false);
                digests.put(ledger, digest);
            }
            long length = lengths.merge(ledger, (long) payload.content().readableBytes(), Long::sum);
            ByteBufList parts = (ByteBufList) digest.computeDigestAndPackageForSending(
                    payload.entry(), payload.entry() - 1, length, payload.content().retainedDuplicate(), key, 0);
            ByteBuf entry = ByteBufList.coalesce(parts);
            parts.release();
            return entry;
        }
    }

    /** Adds entries to new logs. The digests are computed here. */
    private static long packaged(Path folder, long size, List<Payload> payloads) throws Exception {
        Client client = new Client();
        DefaultEntryLogger logger = logger(folder, size);
        try {
            for (Payload payload : payloads) {
                ByteBuf entry = client.entry(payload);
                sink += logger.addEntry(payload.ledger(), entry);
                entry.release();
            }
            logger.flush();
        } finally {
            logger.close();
        }
        return payloads.size();
    }

    /** Stores entries as a bookie does: each goes to the entry log and the index, and to the journal. Nothing is synced. */
    private static long stored(Path folder, long size, List<Payload> payloads) throws Exception {
        delete(folder);
        Path journals = folder.resolve("journal/current");
        Files.createDirectories(journals);
        Files.createDirectories(folder.resolve("ledger/current"));
        ServerConfiguration conf = configuration(folder.resolve("ledger").toFile());
        conf.setJournalDirsName(new String[] {folder.resolve("journal").toString()});
        conf.setAllowLoopback(true);
        conf.setJournalSyncData(false);
        conf.setLedgerStorageClass(InterleavedLedgerStorage.class.getName());
        conf.setEntryLogSizeLimit(size);
        conf.setDiskUsageThreshold(0.999f);
        conf.setDiskUsageWarnThreshold(0.998f);
        LedgerStorage storage = BookieImpl.mountLedgerStorageOffline(conf, null);
        LedgerDirsManager manager = new LedgerDirsManager(conf, conf.getLedgerDirs(), new DiskChecker(0.999f, 0.998f));
        Journal journal = new Journal(0, journals.toFile(), conf, manager);
        journal.start();
        Client client = new Client();
        CountDownLatch acknowledged = new CountDownLatch(payloads.size());
        Set<Long> known = new HashSet<>();
        for (Payload payload : payloads) {
            if (known.add(payload.ledger())) {
                storage.setMasterKey(payload.ledger(), client.key);
            }
            ByteBuf entry = client.entry(payload);
            sink += storage.addEntry(entry);
            journal.logAddEntry(entry, false, (code, ledger, id, bookie, context) -> acknowledged.countDown(), null);
            entry.release();
        }
        acknowledged.await();
        storage.flush();
        journal.shutdown();
        storage.shutdown();
        return payloads.size();
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
