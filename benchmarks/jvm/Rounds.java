package logwright.bench;

import com.sun.management.OperatingSystemMXBean;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.util.HashMap;
import java.util.Map;
import java.util.Scanner;

/**
 * Runs tasks on request. Each line of standard input is a request: the name of a task and its arguments, separated by tabs.
 *
 * <p>The task is repeated until it has used {@code seconds} of processor time. Then one line is printed: seconds of processor time
 * per pass (garbage collection included), seconds on the wall clock per pass, and the result of the last pass.
 */
public final class Rounds {
    /** One pass: returns how many records or bytes it processed. */
    public interface Task {
        long run() throws Exception;

        /** What each pass needs before it starts. It is not measured. */
        default void before() throws Exception {}
    }

    /** Prepares the task of a request. It is called once for each different request. */
    public interface Tasks {
        Task prepare(String[] request) throws Exception;
    }

    private static final OperatingSystemMXBean PROCESS =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    /** Answers requests until standard input ends. */
    public static void serve(double seconds, Tasks tasks) throws Exception {
        PrintStream out = System.out;
        Scanner requests = new Scanner(System.in);
        Map<String, Task> prepared = new HashMap<>();
        while (requests.hasNextLine()) {
            String line = requests.nextLine();
            Task task = prepared.get(line);
            if (task == null) {
                task = tasks.prepare(line.split("\t"));
                prepared.put(line, task);
            }
            out.println(round(task, (long) (seconds * 1e9)));
            out.flush();
        }
        System.exit(0);
    }

    private static String round(Task task, long nanos) throws Exception {
        System.gc();
        long result;
        long used = 0;
        long waited = 0;
        int passes = 0;
        do {
            task.before();
            long processor = PROCESS.getProcessCpuTime();
            long wall = System.nanoTime();
            result = task.run();
            used += PROCESS.getProcessCpuTime() - processor;
            waited += System.nanoTime() - wall;
            passes++;
        } while (used < nanos);
        return used / 1e9 / passes + " " + waited / 1e9 / passes + " " + result;
    }

    private Rounds() {
    }
}
