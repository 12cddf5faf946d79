package logwright.oracle.rocketmq;

import java.util.Map;
import logwright.oracle.Answers;

/** Answers questions with RocketMQ's own store classes. */
public final class Oracle {
    public static void main(String[] args) throws Exception {
        Answers.run(Map.ofEntries(
            Map.entry("load", Stores::load),
            Map.entry("put", Stores::put),
            Map.entry("close", Stores::close)));
    }

    private Oracle() {
    }
}
