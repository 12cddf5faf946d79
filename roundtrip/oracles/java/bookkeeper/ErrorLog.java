package logwright.oracle.bookkeeper;

import java.util.ArrayList;
import java.util.List;
import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.core.LogEvent;
import org.apache.logging.log4j.core.LoggerContext;
import org.apache.logging.log4j.core.appender.AbstractAppender;
import org.apache.logging.log4j.core.config.Property;

/** Keeps the exceptions that the bookie logs as errors: it does not throw those that end its start. */
final class ErrorLog extends AbstractAppender {
    private static final ErrorLog SELF = new ErrorLog();
    private final List<Throwable> errors = new ArrayList<>();

    private ErrorLog() {
        super("errors", null, null, true, Property.EMPTY_ARRAY);
    }

    static void install() {
        LoggerContext context = (LoggerContext) LogManager.getContext(false);
        SELF.start();
        context.getConfiguration().getRootLogger().addAppender(SELF, Level.ERROR, null);
        context.updateLoggers();
    }

    @Override
    public void append(LogEvent event) {
        if (event.getThrown() != null && event.getLevel().isMoreSpecificThan(Level.ERROR)) {
            synchronized (errors) {
                errors.add(event.getThrown());
            }
        }
    }

    static void clear() {
        synchronized (SELF.errors) {
            SELF.errors.clear();
        }
    }

    /** The last logged exception, or null. */
    static Throwable last() {
        synchronized (SELF.errors) {
            return SELF.errors.isEmpty() ? null : SELF.errors.get(SELF.errors.size() - 1);
        }
    }
}
