package logwright.oracle.kafka;

import java.io.IOException;

/** Kafka's own main, in a process that does not outlive the one that started it: it halts when its stdin ends. */
public final class BrokerMain {
    public static void main(String[] args) {
        Thread watch = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    continue;
                }
            } catch (IOException error) {
                // As good as the end.
            }
            Runtime.getRuntime().halt(137);
        }, "watch-stdin");
        watch.setDaemon(true);
        watch.start();
        kafka.Kafka.main(args);
    }

    private BrokerMain() {
    }
}
