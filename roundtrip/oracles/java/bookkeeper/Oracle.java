package logwright.oracle.bookkeeper;

import java.util.Map;
import logwright.oracle.Answers;

/** Answers questions with BookKeeper's own classes: readers of files, and a bookie with a client. */
public final class Oracle {
    public static void main(String[] args) throws Exception {
        System.setOut(System.err);
        ErrorLog.install();
        try {
            Answers.run(Map.ofEntries(
                Map.entry("scan_log", Files::scanLog),
                Map.entry("ledgers_map", Files::ledgersMap),
                Map.entry("scan_journal", Files::scanJournal),
                Map.entry("last_mark", Files::lastMark),
                Map.entry("cookie", Files::cookie),
                Map.entry("start", Servers::start),
                Map.entry("read", Servers::read),
                Map.entry("check", Servers::check),
                Map.entry("add", Servers::add),
                Map.entry("recover", Servers::recover),
                Map.entry("stop", Servers::stop)));
        } finally {
            // A broken pipe ends the answers, but not the threads of ZooKeeper and of the bookie.
            Runtime.getRuntime().halt(1);
        }
    }

    private Oracle() {
    }
}
