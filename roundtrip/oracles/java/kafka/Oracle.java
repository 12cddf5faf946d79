package logwright.oracle.kafka;

import java.io.IOException;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import logwright.oracle.Answers;
import org.apache.kafka.common.utils.Exit;

/** Answers questions with Kafka's own classes. */
public final class Oracle {
    /** Thrown where a tool of Kafka's would end the process. */
    static final class ExitCalled extends RuntimeException {
        private static final long serialVersionUID = 1;
        final int status;

        ExitCalled(int status, String message) {
            super(message);
            this.status = status;
            CALLED.add(this);
        }
    }

    /** Every exit that was asked for, also in threads whose exceptions nobody sees. */
    static final Queue<ExitCalled> CALLED = new ConcurrentLinkedQueue<>();

    public static void main(String[] args) throws IOException {
        Exit.setExitProcedure((status, message) -> {
            throw new ExitCalled(status, message);
        });
        Exit.setHaltProcedure((status, message) -> {
            throw new ExitCalled(status, message);
        });
        Answers.run(Map.ofEntries(
            Map.entry("batches", Segments::batches),
            Map.entry("summary", Segments::summary),
            Map.entry("build", Segments::build),
            Map.entry("dump", Tools::dump),
            Map.entry("format", Tools::format),
            Map.entry("formatted", Formatters::formatted),
            Map.entry("start", Start::start),
            Map.entry("sanity", Partition::sanity),
            Map.entry("load", Partition::load),
            Map.entry("hash_map_order", Partition::hashMapOrder),
            Map.entry("read_snapshot", Partition::readSnapshot),
            Map.entry("write_snapshot", Partition::writeSnapshot),
            Map.entry("compact", Compaction::compact),
            Map.entry("create_topic", Client::createTopic),
            Map.entry("offsets", Client::offsets),
            Map.entry("consume", Client::consume),
            Map.entry("produce", Client::produce)));
    }

    private Oracle() {
    }
}
