package logwright.oracle.zookeeper;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.HexFormat;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import logwright.oracle.Answers;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;
import org.apache.zookeeper.server.NIOServerCnxnFactory;
import org.apache.zookeeper.server.ServerCnxnFactory;
import org.apache.zookeeper.server.ZooKeeperServer;
import org.apache.zookeeper.server.persistence.FileTxnSnapLog;

/** A stand-alone server on a data directory, and a client that reads all of its tree. */
final class Serve {
    private static final HexFormat HEX = HexFormat.of();
    private static final int TICK = 2000;

    /** Items: the nodes that a client sees. With `create` it then makes these nodes, before the server is stopped. */
    static JsonNode serve(JsonNode request, Answers.Items items) throws Exception {
        File snapDir = new File(request.path("dataDir").asText());
        File logDir = request.hasNonNull("dataLogDir") ? new File(request.path("dataLogDir").asText()) : snapDir;
        ZooKeeperServer server = new ZooKeeperServer(new FileTxnSnapLog(logDir, snapDir), TICK, "");
        ServerCnxnFactory factory = new NIOServerCnxnFactory();
        factory.configure(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 10);
        try {
            factory.startup(server);
            ObjectNode done = Answers.JSON.createObjectNode();
            ArrayNode files = done.putArray("files_after_start");
            String[] names = new File(snapDir, "version-2").list();
            for (String name : new TreeSet<>(List.of(names))) {
                files.add(name);
            }
            CountDownLatch connected = new CountDownLatch(1);
            ZooKeeper client = new ZooKeeper("127.0.0.1:" + factory.getLocalPort(), 30000, event -> {
                if (event.getState() == Watcher.Event.KeeperState.SyncConnected) {
                    connected.countDown();
                }
            });
            try {
                if (!connected.await(30, TimeUnit.SECONDS)) {
                    throw new IllegalStateException("no connection");
                }
                walk(client, "/", items);
                for (JsonNode path : request.path("create")) {
                    client.create(path.asText(), new byte[] {1}, ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
                }
            } finally {
                client.close();
            }
            done.put("last_processed_zxid", server.getLastProcessedZxid());
            done.put("tree_digest", server.getZKDatabase().getDataTree().getTreeDigest());
            return done;
        } finally {
            factory.shutdown();
            server.shutdown();
        }
    }

    private static void walk(ZooKeeper client, String path, Answers.Items items) throws Exception {
        ObjectNode one = Answers.JSON.createObjectNode();
        one.put("path", path);
        try {
            Stat stat = new Stat();
            byte[] data = client.getData(path, false, stat);
            one.put("data", data == null ? null : HEX.formatHex(data));
            one.set("acl", Data.acls(client.getACL(path, null)));
            one.set("stat", Data.stat(stat));
        } catch (KeeperException error) {
            one.put("error", error.code().toString());
        }
        items.add(one);
        for (String child : new TreeSet<>(client.getChildren(path, false))) {
            walk(client, path.equals("/") ? "/" + child : path + "/" + child, items);
        }
    }

    private Serve() {
    }
}
