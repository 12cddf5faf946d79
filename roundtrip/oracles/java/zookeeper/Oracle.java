package logwright.oracle.zookeeper;

import java.io.IOException;
import java.util.Map;
import logwright.oracle.Answers;

/** Answers questions with ZooKeeper's own classes. */
public final class Oracle {
    public static void main(String[] args) throws IOException {
        Answers.run(Map.ofEntries(
            Map.entry("restore", Data::restore),
            Map.entry("serve", Serve::serve),
            Map.entry("snapshot_formatter", Tools::snapshotFormatter),
            Map.entry("txn_log_toolkit", Tools::txnLogToolkit)));
    }

    private Oracle() {
    }
}
