package logwright.oracle.zookeeper;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.io.IOException;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import logwright.oracle.Answers;
import org.apache.zookeeper.data.ACL;
import org.apache.zookeeper.data.Stat;
import org.apache.zookeeper.data.StatPersisted;
import org.apache.zookeeper.server.DataNode;
import org.apache.zookeeper.server.DataTree;
import org.apache.zookeeper.server.ZKDatabase;
import org.apache.zookeeper.server.persistence.FileTxnSnapLog;

/** A data directory loaded as a server does it before it opens its port. */
final class Data {
    private static final HexFormat HEX = HexFormat.of();

    /** `dataDir` and `dataLogDir` as zoo.cfg names them. Items: the nodes. */
    static JsonNode restore(JsonNode request, Answers.Items items) throws Exception {
        File snapDir = new File(request.path("dataDir").asText());
        File logDir = request.hasNonNull("dataLogDir") ? new File(request.path("dataLogDir").asText()) : snapDir;
        FileTxnSnapLog files = new FileTxnSnapLog(logDir, snapDir);
        ZKDatabase database = new ZKDatabase(files);
        ArrayNode mismatches = Answers.JSON.createArrayNode();
        try {
            database.getDataTree().addDigestWatcher(zxid -> mismatches.add(zxid));
            long zxid = database.loadDataBase();
            DataTree tree = database.getDataTree();
            ObjectNode done = Answers.JSON.createObjectNode();
            done.put("returned_zxid", zxid);
            done.put("last_processed_zxid", tree.lastProcessedZxid);
            done.put("node_count", tree.getNodeCount());
            done.put("tree_digest", tree.getTreeDigest());
            ObjectNode sessions = done.putObject("sessions");
            for (Map.Entry<Long, Integer> one : new TreeMap<>(database.getSessionWithTimeOuts()).entrySet()) {
                sessions.put(Long.toString(one.getKey()), one.getValue());
            }
            done.set("digest_mismatches", mismatches);
            DataTree.ZxidDigest left = tree.getDigestFromLoadedSnapshot();
            // What a snapshot says is compared when its zxid is reached, and then forgotten.
            done.put("snapshot_digest_left", left == null ? null : left.getZxid());
            if (request.path("nodes").asBoolean(true)) {
                walk(tree, "", items);
            }
            return done;
        } finally {
            files.close();
        }
    }

    private static void walk(DataTree tree, String path, Answers.Items items) throws IOException {
        DataNode node = tree.getNode(path);
        ObjectNode one = Answers.JSON.createObjectNode();
        one.put("path", path.isEmpty() ? "/" : path);
        one.put("data", node.getData() == null ? null : HEX.formatHex(node.getData()));
        try {
            one.set("acl", acls(tree.getACL(node)));
        } catch (RuntimeException error) {
            one.put("acl_error", error.getMessage());
        }
        one.set("persisted", persisted(node.stat));
        Stat seen = new Stat();
        node.copyStat(seen);
        one.set("stat", stat(seen));
        items.add(one);
        for (String child : new TreeSet<>(node.getChildren())) {
            walk(tree, path + "/" + child, items);
        }
    }

    static ArrayNode acls(List<ACL> list) {
        ArrayNode out = Answers.JSON.createArrayNode();
        for (ACL one : list) {
            out.addObject().put("perms", one.getPerms()).put("scheme", one.getId().getScheme()).put("id", one.getId().getId());
        }
        return out;
    }

    private static ObjectNode persisted(StatPersisted stat) {
        return Answers.JSON.createObjectNode()
            .put("czxid", stat.getCzxid()).put("mzxid", stat.getMzxid())
            .put("ctime", stat.getCtime()).put("mtime", stat.getMtime())
            .put("version", stat.getVersion()).put("cversion", stat.getCversion()).put("aversion", stat.getAversion())
            .put("ephemeralOwner", stat.getEphemeralOwner()).put("pzxid", stat.getPzxid());
    }

    static ObjectNode stat(Stat stat) {
        return Answers.JSON.createObjectNode()
            .put("czxid", stat.getCzxid()).put("mzxid", stat.getMzxid())
            .put("ctime", stat.getCtime()).put("mtime", stat.getMtime())
            .put("version", stat.getVersion()).put("cversion", stat.getCversion()).put("aversion", stat.getAversion())
            .put("ephemeralOwner", stat.getEphemeralOwner()).put("dataLength", stat.getDataLength())
            .put("numChildren", stat.getNumChildren()).put("pzxid", stat.getPzxid());
    }

    private Data() {
    }
}
