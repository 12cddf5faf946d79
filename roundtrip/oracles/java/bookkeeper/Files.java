package logwright.oracle.bookkeeper;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufUtil;
import java.io.File;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.HexFormat;
import logwright.oracle.Answers;
import org.apache.bookkeeper.bookie.Cookie;
import org.apache.bookkeeper.bookie.DefaultEntryLogger;
import org.apache.bookkeeper.bookie.EntryLogMetadata;
import org.apache.bookkeeper.bookie.Journal;
import org.apache.bookkeeper.bookie.LedgerDirsManager;
import org.apache.bookkeeper.bookie.LogMark;
import org.apache.bookkeeper.bookie.ReadOnlyDefaultEntryLogger;
import org.apache.bookkeeper.bookie.storage.EntryLogScanner;
import org.apache.bookkeeper.conf.ServerConfiguration;
import org.apache.bookkeeper.util.DiskChecker;

/** The readers of single files. Nothing is changed. */
final class Files {
    private static final HexFormat HEX = HexFormat.of();
    private static final int IDS = 16;

    /** Items: the entries of an entry log with the position of their size. */
    static JsonNode scanLog(JsonNode request, Answers.Items items) throws Exception {
        DefaultEntryLogger logger = new ReadOnlyDefaultEntryLogger(configuration(request));
        try {
            logger.scanEntryLog(request.path("log").asLong(), new EntryLogScanner() {
                @Override
                public boolean accept(long ledger) {
                    return true;
                }

                @Override
                public void process(long ledger, long offset, ByteBuf entry) throws java.io.IOException {
                    ObjectNode item = Answers.JSON.createObjectNode();
                    item.put("position", offset);
                    item.put("ledger_id", ledger);
                    item.put("entry_id", entry.readableBytes() < IDS ? null : entry.getLong(entry.readerIndex() + 8));
                    item.put("content", ByteBufUtil.hexDump(entry));
                    items.add(item);
                }
            });
        } finally {
            logger.close();
        }
        return Answers.JSON.createObjectNode();
    }

    /** The ledgers map at the end of an entry log. */
    static JsonNode ledgersMap(JsonNode request, Answers.Items items) throws Exception {
        DefaultEntryLogger logger = new ReadOnlyDefaultEntryLogger(configuration(request));
        try {
            Method extract = DefaultEntryLogger.class.getDeclaredMethod("extractEntryLogMetadataFromIndex", long.class);
            extract.setAccessible(true);
            EntryLogMetadata metadata;
            try {
                metadata = (EntryLogMetadata) extract.invoke(logger, request.path("log").asLong());
            } catch (InvocationTargetException error) {
                throw (Exception) error.getCause();
            }
            ArrayNode ledgers = Answers.JSON.createArrayNode();
            metadata.getLedgersMap().forEach((ledger, size) -> ledgers.addArray().add(ledger).add(size));
            return ledgers;
        } finally {
            logger.close();
        }
    }

    /** Items: the records of a journal. The result is the position where the scan ends. */
    static JsonNode scanJournal(JsonNode request, Answers.Items items) throws Exception {
        long end = journal(request).scanJournal(
            request.path("id").asLong(),
            request.path("position").asLong(),
            (version, offset, entry) -> {
                byte[] body = new byte[entry.remaining()];
                entry.duplicate().get(body);
                ObjectNode item = Answers.JSON.createObjectNode();
                item.put("version", version);
                item.put("position", offset);
                item.put("body", HEX.formatHex(body));
                items.add(item);
            },
            false);
        return Answers.JSON.getNodeFactory().numberNode(end);
    }

    static JsonNode lastMark(JsonNode request, Answers.Items items) throws Exception {
        LogMark mark = journal(request).getLastLogMark().getCurMark();
        return Answers.JSON.createArrayNode().add(mark.getLogFileId()).add(mark.getLogFileOffset());
    }

    /** The text that the bookie writes for the VERSION that it reads. */
    static JsonNode cookie(JsonNode request, Answers.Items items) throws Exception {
        File current = new File(request.path("ledger_dir").asText(), "current");
        return Answers.JSON.getNodeFactory().textNode(Cookie.readFromDirectory(current).toString());
    }

    private static ServerConfiguration configuration(JsonNode request) {
        ServerConfiguration conf = new ServerConfiguration();
        conf.setLedgerDirNames(new String[] {request.path("ledger_dir").asText()});
        return conf;
    }

    private static Journal journal(JsonNode request) throws Exception {
        ServerConfiguration conf = configuration(request);
        LedgerDirsManager ledgers = new LedgerDirsManager(conf, conf.getLedgerDirs(), new DiskChecker(0.999f, 0.998f));
        return new Journal(0, new File(request.path("journal_dir").asText(), "current"), conf, ledgers);
    }

    private Files() {
    }
}
