package logwright.oracle.kafka;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.util.HexFormat;

/** Bytes in JSON: hex digits, or null. */
final class Hex {
    private static final HexFormat HEX = HexFormat.of();

    static String of(byte[] bytes) {
        return bytes == null ? null : HEX.formatHex(bytes);
    }

    static String of(ByteBuffer buffer) {
        if (buffer == null) {
            return null;
        }
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return HEX.formatHex(bytes);
    }

    /** The bytes of a field that may be null or absent. */
    static byte[] bytes(JsonNode node) {
        return node == null || node.isNull() || node.isMissingNode() ? null : HEX.parseHex(node.asText());
    }

    static ByteBuffer buffer(JsonNode node) {
        byte[] bytes = bytes(node);
        return bytes == null ? null : ByteBuffer.wrap(bytes);
    }

    private Hex() {
    }
}
