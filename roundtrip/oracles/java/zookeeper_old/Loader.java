package org.apache.zookeeper.server;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import logwright.oracle.Answers;
import org.apache.zookeeper.data.ACL;
import org.apache.zookeeper.data.Stat;
import org.apache.zookeeper.server.persistence.FileTxnSnapLog;

/**
 * Loads data directories as a server does at its start, with what all versions from 3.4 on have in common.
 *
 * Of {@code {"op": "load", "dataDir": path}} the items are the nodes.
 * It is in ZooKeeper's own package since a node's data was not for others once.
 */
public final class Loader {
    public static void main(String[] args) throws IOException {
        Answers.run(Map.of("load", Loader::load));
    }

    private static JsonNode load(JsonNode request, Answers.Items items) throws Exception {
        File folder = new File(request.path("dataDir").asText());
        FileTxnSnapLog files = new FileTxnSnapLog(folder, folder);
        try {
            ZKDatabase database = new ZKDatabase(files);
            ObjectNode done = Answers.JSON.createObjectNode();
            done.put("returned_zxid", database.loadDataBase());
            long last = database.getDataTreeLastProcessedZxid();
            done.put("last_processed_zxid", last);
            ObjectNode sessions = done.putObject("sessions");
            for (Map.Entry<Long, Integer> one : new TreeMap<>(database.getSessionWithTimeOuts()).entrySet()) {
                sessions.put(Long.toString(one.getKey()), one.getValue());
            }
            // As ZooKeeperServer.loadData.
            for (Long session : new ArrayList<>(database.getSessions())) {
                if (!database.getSessionWithTimeOuts().containsKey(session)) {
                    database.killSession(session, last);
                }
            }
            walk(database.getDataTree(), "", items);
            return done;
        } finally {
            files.close();
        }
    }

    private static void walk(DataTree tree, String path, Answers.Items items) throws Exception {
        DataNode node = tree.getNode(path);
        ObjectNode one = Answers.JSON.createObjectNode();
        one.put("path", path.isEmpty() ? "/" : path);
        one.put("data", hex(node.data));
        try {
            ArrayNode acl = Answers.JSON.createArrayNode();
            for (ACL entry : tree.getACL(path, new Stat())) {
                acl.addObject()
                    .put("perms", entry.getPerms()).put("scheme", entry.getId().getScheme()).put("id", entry.getId().getId());
            }
            one.set("acl", acl);
        } catch (RuntimeException error) {
            one.putNull("acl");
        }
        Stat stat = new Stat();
        node.copyStat(stat);
        one.putObject("stat")
            .put("czxid", stat.getCzxid()).put("mzxid", stat.getMzxid())
            .put("ctime", stat.getCtime()).put("mtime", stat.getMtime())
            .put("version", stat.getVersion()).put("cversion", stat.getCversion()).put("aversion", stat.getAversion())
            .put("ephemeralOwner", stat.getEphemeralOwner()).put("dataLength", stat.getDataLength())
            .put("numChildren", stat.getNumChildren()).put("pzxid", stat.getPzxid());
        items.add(one);
        for (String child : new TreeSet<>(node.getChildren())) {
            walk(tree, path + "/" + child, items);
        }
    }

    private static String hex(byte[] data) {
        if (data == null) {
            return null;
        }
        StringBuilder out = new StringBuilder();
        for (byte one : data) {
            out.append(String.format("%02x", one));
        }
        return out.toString();
    }

    private Loader() {
    }
}
