package logwright.oracle.bookkeeper;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufUtil;
import io.netty.buffer.Unpooled;
import io.netty.buffer.UnpooledByteBufAllocator;
import java.io.File;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.PrimitiveIterator;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import logwright.oracle.Answers;
import org.apache.bookkeeper.bookie.Bookie;
import org.apache.bookkeeper.bookie.BookieImpl;
import org.apache.bookkeeper.bookie.CompactableLedgerStorage;
import org.apache.bookkeeper.bookie.Cookie;
import org.apache.bookkeeper.bookie.LedgerStorage;
import org.apache.bookkeeper.client.BKException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.BookKeeperAdmin;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.client.LedgerMetadataBuilder;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.discover.RegistrationManager;
import org.apache.bookkeeper.meta.MetadataBookieDriver;
import org.apache.bookkeeper.net.BookieId;
import org.apache.bookkeeper.proto.checksum.DigestManager;
import org.apache.bookkeeper.server.EmbeddedServer;
import org.apache.bookkeeper.server.conf.BookieConfiguration;
import org.apache.bookkeeper.util.ByteBufList;
import org.apache.bookkeeper.versioning.Version;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.server.NIOServerCnxnFactory;
import org.apache.zookeeper.server.ServerCnxnFactory;
import org.apache.zookeeper.server.ZooKeeperServer;

/** One bookie with a client. The metadata is in a ZooKeeper server of this process; each bookie starts with a new root in it. */
final class Servers {
    private static final HexFormat HEX = HexFormat.of();
    private static final String SORTED = "org.apache.bookkeeper.bookie.SortedLedgerStorage";
    private static final String TIME_OUT = "BKTimeoutException";
    private static ServerCnxnFactory zookeeper;
    private static int roots;

    private static EmbeddedServer server;
    private static BookKeeper client;
    private static BookieId bookieId;

    /**
     * Starts a bookie in the working directory. The cookie that its configuration requires is in the metadata store. The result
     * has the chain of exceptions, outermost first, if it does not start.
     */
    static JsonNode start(JsonNode request, Answers.Items items) throws Exception {
        stop(request, items);
        ErrorLog.clear();
        ServerConfiguration conf = configuration(request);
        ObjectNode done = Answers.JSON.createObjectNode();
        Throwable failure = null;
        try {
            register(conf, request.path("instance_id").asText());
            server = EmbeddedServer.builder(new BookieConfiguration(conf)).build();
            server.getLifecycleComponentStack().start();
            if (!bookie().isRunning()) {
                failure = ErrorLog.last();
            }
        } catch (Throwable error) {
            failure = error;
        }
        done.put("started", failure == null);
        if (failure != null) {
            done.set("exception", chain(failure));
            end();
        }
        return done;
    }

    /**
     * Items: each ledger that the storage knows, its entries as the storage reads them, and then those that a client reads.
     *
     * `ledgers` are the ledgers with digest type, password, and the entries to ask for where the storage lists none.
     */
    static JsonNode read(JsonNode request, Answers.Items items) throws Exception {
        LedgerStorage storage = bookie().getLedgerStorage();
        TreeSet<Long> known = new TreeSet<>();
        if (storage instanceof CompactableLedgerStorage listing) {
            listing.getActiveLedgersInRange(Long.MIN_VALUE, Long.MAX_VALUE).forEach(known::add);
        } else {
            for (JsonNode ledger : request.path("ledgers")) {
                if (storage.ledgerExists(ledger.path("ledger_id").asLong())) {
                    known.add(ledger.path("ledger_id").asLong());
                }
            }
        }
        Map<Long, List<Long>> listed = new java.util.TreeMap<>();
        for (long ledger : known) {
            listed.put(ledger, ledger(storage, ledger, request, items));
        }
        for (JsonNode ledger : request.path("ledgers")) {
            List<Long> entries = listed.get(ledger.path("ledger_id").asLong());
            if (entries != null) {
                items.add(clientRead(ledger, entries));
            }
        }
        return Answers.JSON.createObjectNode();
    }

    private interface Call {
        JsonNode run() throws Exception;
    }

    private static void answer(ObjectNode item, String name, Call call) {
        try {
            item.set(name, call.run());
        } catch (Throwable error) {
            item.set(name + "_error", chain(error));
        }
    }

    private static List<Long> ledger(LedgerStorage storage, long ledger, JsonNode request, Answers.Items items)
            throws Exception {
        var nodes = Answers.JSON.getNodeFactory();
        ObjectNode item = Answers.JSON.createObjectNode();
        item.put("kind", "ledger").put("ledger_id", ledger);
        answer(item, "fenced", () -> nodes.booleanNode(storage.isFenced(ledger)));
        answer(item, "master_key", () -> {
            byte[] key = storage.readMasterKey(ledger);
            return key == null ? nodes.nullNode() : nodes.textNode(HEX.formatHex(key));
        });
        answer(item, "explicit_lac", () -> {
            ByteBuf buffer = storage.getExplicitLac(ledger);
            return buffer == null ? nodes.nullNode() : nodes.textNode(ByteBufUtil.hexDump(buffer));
        });
        TreeSet<Long> entries = new TreeSet<>();
        answer(item, "listed", () -> {
            try {
                PrimitiveIterator.OfLong ids = storage.getListOfEntriesOfLedger(ledger);
                while (ids.hasNext()) {
                    entries.add(ids.nextLong());
                }
            } catch (UnsupportedOperationException error) {
                for (JsonNode asked : request.path("ledgers")) {
                    if (asked.path("ledger_id").asLong() == ledger) {
                        asked.path("entries").forEach(entry -> entries.add(entry.asLong()));
                    }
                }
            }
            return nodes.numberNode(entries.size());
        });
        items.add(item);
        List<Long> found = new ArrayList<>();
        for (long entry : entries) {
            ObjectNode row = Answers.JSON.createObjectNode();
            row.put("kind", "entry").put("ledger_id", ledger).put("entry_id", entry);
            try {
                ByteBuf content = storage.getEntry(ledger, entry);
                row.put("content", ByteBufUtil.hexDump(content));
                content.release();
            } catch (Bookie.NoEntryException error) {
                if (!(storage instanceof CompactableLedgerStorage)) {
                    continue;
                }
                row.set("error", chain(error));
            } catch (Throwable error) {
                row.set("error", chain(error));
            }
            found.add(entry);
            items.add(row);
        }
        return found;
    }

    private static JsonNode clientRead(JsonNode ledger, List<Long> entries) throws Exception {
        ObjectNode item = Answers.JSON.createObjectNode();
        item.put("kind", "client").put("ledger_id", ledger.path("ledger_id").asLong());
        LedgerHandle handle;
        try {
            handle = open(ledger, false);
        } catch (BKException error) {
            return item.put("error", error.getClass().getSimpleName());
        }
        ArrayNode read = item.putArray("read");
        ObjectNode failed = item.putObject("failed");
        boolean stopped = false;
        for (long entry : entries) {
            if (stopped) {
                failed.put(Long.toString(entry), "not tried after a time-out");
                continue;
            }
            try {
                handle.readUnconfirmedEntries(entry, entry).nextElement().getEntry();
                read.add(entry);
            } catch (BKException error) {
                failed.put(Long.toString(entry), error.getClass().getSimpleName());
                stopped = error.getClass().getSimpleName().equals(TIME_OUT);
            }
        }
        handle.close();
        return item;
    }

    /** Opens a ledger with a client, and first creates its metadata if there are none. */
    private static LedgerHandle open(JsonNode ledger, boolean recover) throws Exception {
        long id = ledger.path("ledger_id").asLong();
        byte[] password = HEX.parseHex(ledger.path("password").asText());
        String digest = ledger.path("digest").asText();
        try {
            client.getLedgerManager().readLedgerMetadata(id).get();
        } catch (java.util.concurrent.ExecutionException error) {
            client.getLedgerManager().createLedgerMetadata(id, LedgerMetadataBuilder.create().withId(id)
                .withPassword(password).withDigestType(DigestType.valueOf(digest)).withEnsembleSize(1)
                .withWriteQuorumSize(1).withAckQuorumSize(1).newEnsembleEntry(0, List.of(bookieId)).build()).get();
        }
        BookKeeper.DigestType type = BookKeeper.DigestType.valueOf(digest);
        return recover ? client.openLedger(id, type, password) : client.openLedgerNoRecovery(id, type, password);
    }

    /** Has the storage compare its index with its entry logs. */
    static JsonNode check(JsonNode request, Answers.Items items) throws Exception {
        for (var found : bookie().getLedgerStorage().localConsistencyCheck(Optional.empty())) {
            items.add(Answers.JSON.createObjectNode().put("ledger_id", found.getLedgerId())
                .put("entry_id", found.getEntryId()).put("error", String.valueOf(found.getException())));
        }
        return Answers.JSON.createObjectNode();
    }

    /**
     * Adds entries. Those of a ledger that is `new` are added by a client that creates it; those of another go to the bookie as a client
     * sends them, with `entry_id`, `last_add_confirmed` and `length`.
     */
    static JsonNode add(JsonNode request, Answers.Items items) throws Exception {
        JsonNode ledger = request.path("ledger");
        long id = ledger.path("ledger_id").asLong();
        byte[] password = HEX.parseHex(ledger.path("password").asText());
        BookKeeper.DigestType type = BookKeeper.DigestType.valueOf(ledger.path("digest").asText());
        if (request.path("new").asBoolean()) {
            try (LedgerHandle handle = client.createLedgerAdv(id, 1, 1, 1, type, password, null)) {
                long entry = 0;
                for (JsonNode row : request.path("rows")) {
                    handle.addEntry(entry++, HEX.parseHex(row.path("payload").asText()));
                }
            }
            return Answers.JSON.createObjectNode();
        }
        byte[] key = DigestManager.generateMasterKey(password);
        DigestManager digests = DigestManager.instantiate(
            id, password, BookKeeper.DigestType.toProtoDigestType(type), UnpooledByteBufAllocator.DEFAULT, false);
        for (JsonNode row : request.path("rows")) {
            byte[] payload = HEX.parseHex(row.path("payload").asText());
            ByteBufList sent = (ByteBufList) digests.computeDigestAndPackageForSending(
                row.path("entry_id").asLong(), row.path("last_add_confirmed").asLong(), row.path("length").asLong(),
                Unpooled.wrappedBuffer(payload), key, 0);
            CompletableFuture<Integer> result = new CompletableFuture<>();
            bookie().addEntry(ByteBufList.coalesce(sent), false,
                (rc, ledgerId, entryId, address, context) -> result.complete(rc), null, key);
            if (result.get(30, TimeUnit.SECONDS) != 0) {
                throw new IllegalStateException("result code " + result.get());
            }
        }
        return Answers.JSON.createObjectNode();
    }

    /** Has a client open a ledger with recovery, which fences and closes it. The result is its last entry. */
    static JsonNode recover(JsonNode request, Answers.Items items) throws Exception {
        try (LedgerHandle handle = open(request.path("ledger"), true)) {
            return Answers.JSON.getNodeFactory().numberNode(handle.getLastAddConfirmed());
        }
    }

    /** Stops the bookie cleanly, if there is one. */
    static JsonNode stop(JsonNode request, Answers.Items items) throws Exception {
        end();
        return Answers.JSON.createObjectNode();
    }

    private static void end() throws Exception {
        BookKeeper oldClient = client;
        EmbeddedServer old = server;
        client = null;
        server = null;
        if (oldClient != null) {
            oldClient.close();
        }
        if (old != null) {
            try {
                if (!bookieOf(old).isRunning()) {
                    bookieOf(old).shutdown();
                }
            } finally {
                old.getLifecycleComponentStack().close();
            }
        }
    }

    private static BookieImpl bookie() {
        if (server == null) {
            throw new IllegalStateException("no bookie is running");
        }
        return bookieOf(server);
    }

    private static BookieImpl bookieOf(EmbeddedServer one) {
        return (BookieImpl) one.getBookieService().getServer().getBookie();
    }

    private static ServerConfiguration configuration(JsonNode request) throws Exception {
        ServerConfiguration conf = new ServerConfiguration();
        try (ServerSocket free = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            conf.setBookiePort(free.getLocalPort());
        }
        conf.setAllowLoopback(true);
        conf.setAdvertisedAddress("127.0.0.1");
        conf.setDiskUsageThreshold(0.999f);
        conf.setDiskUsageWarnThreshold(0.998f);
        conf.setLedgerStorageClass(SORTED);
        Map<String, Object> few = Map.ofEntries(
            Map.entry("journalPreAllocSizeMB", 1), Map.entry("flushInterval", 1_800_000), Map.entry("gcWaitTime", 1_800_000),
            Map.entry("numAddWorkerThreads", 1), Map.entry("numReadWorkerThreads", 1),
            Map.entry("numLongPollWorkerThreads", 0), Map.entry("numHighPriorityWorkerThreads", 1),
            Map.entry("serverNumIOThreads", 1), Map.entry("dbStorage_writeCacheMaxSizeMb", 8),
            Map.entry("dbStorage_readAheadCacheMaxSizeMb", 8), Map.entry("dbStorage_rocksDB_blockCacheSize", 8 << 20));
        few.forEach(conf::setProperty);
        request.path("config").fields().forEachRemaining(
            setting -> conf.setProperty(setting.getKey(), setting.getValue().asText()));
        conf.setMetadataServiceUri("zk+hierarchical://127.0.0.1:" + zookeeperPort() + "/bookie" + roots++);
        return conf;
    }

    private static int zookeeperPort() throws Exception {
        if (zookeeper == null) {
            File home = java.nio.file.Files.createTempDirectory(new File("").toPath().toAbsolutePath(), "zookeeper").toFile();
            zookeeper = new NIOServerCnxnFactory();
            zookeeper.configure(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 100);
            zookeeper.startup(new ZooKeeperServer(home, home, 2000));
        }
        return zookeeper.getLocalPort();
    }

    /** Makes a new root with the instance id and the cookie of the bookie, and a client. */
    private static void register(ServerConfiguration conf, String instanceId) throws Exception {
        BookKeeperAdmin.initNewCluster(conf);
        String root = conf.getMetadataServiceUri().replaceFirst("^.*:[0-9]+", "");
        try (ZooKeeper direct = new ZooKeeper("127.0.0.1:" + zookeeperPort(), 30000, event -> { })) {
            direct.setData(root + "/INSTANCEID", instanceId.getBytes(StandardCharsets.UTF_8), -1);
        }
        MetadataBookieDriver driver = org.apache.bookkeeper.bookie.BookieResources.createMetadataDriver(
            conf, org.apache.bookkeeper.stats.NullStatsLogger.INSTANCE);
        try (driver; RegistrationManager manager = driver.createRegistrationManager()) {
            Cookie cookie = Cookie.generateCookie(conf).setInstanceId(instanceId).build();
            cookie.writeToRegistrationManager(manager, conf, Version.NEW);
        }
        bookieId = BookieImpl.getBookieId(conf);
        ClientConfiguration settings = new ClientConfiguration();
        settings.setMetadataServiceUri(conf.getMetadataServiceUri());
        settings.setReadEntryTimeout(4);
        settings.setNumIOThreads(1);
        settings.setNumWorkerThreads(1);
        client = new BookKeeper(settings);
    }

    private static ArrayNode chain(Throwable error) {
        ArrayNode out = Answers.JSON.createArrayNode();
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            boolean repeats = cause.getCause() != null && cause.getCause().toString().equals(cause.getMessage());
            out.add(repeats || "".equals(cause.getMessage()) ? cause.getClass().getName() : cause.toString());
        }
        return out;
    }

    private Servers() {
    }
}
