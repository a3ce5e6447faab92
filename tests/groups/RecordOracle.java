import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Scanner;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.coordinator.group.generated.GroupMetadataKey;
import org.apache.kafka.coordinator.group.generated.GroupMetadataValue;
import org.apache.kafka.coordinator.group.generated.OffsetCommitKey;
import org.apache.kafka.coordinator.group.generated.OffsetCommitValue;

/**
 * Reads lines "key value" in hexadecimal ("-" for no value), parses both with Kafka's own classes,
 * and answers with the key as Kafka writes it and the value in every version, or with what Java's
 * hash of a string is for a line "hash utf8".
 */
public class RecordOracle {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] args) {
        Scanner lines = new Scanner(System.in, StandardCharsets.US_ASCII);
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split(" ", -1);
            if (words[0].equals("hash")) {
                byte[] text = HEX.parseHex(words[1]);
                System.out.println(new String(text, StandardCharsets.UTF_8).hashCode());
            } else {
                System.out.println(answer(words[0], words[1]));
            }
        }
    }

    private static String answer(String keyHex, String valueHex) {
        ByteBuffer keyBytes = ByteBuffer.wrap(HEX.parseHex(keyHex));
        short kind = keyBytes.getShort();
        boolean isOffset = kind == 1;
        Message key = isOffset ? new OffsetCommitKey() : new GroupMetadataKey();
        key.read(new ByteBufferAccessor(keyBytes), (short) 0);
        StringBuilder answer = new StringBuilder(bytes(kind, key, (short) 0));
        if (!valueHex.equals("-")) {
            ByteBuffer valueBytes = ByteBuffer.wrap(HEX.parseHex(valueHex));
            short version = valueBytes.getShort();
            Message value = isOffset ? new OffsetCommitValue() : new GroupMetadataValue();
            value.read(new ByteBufferAccessor(valueBytes), version);
            if (keyBytes.hasRemaining() || valueBytes.hasRemaining()) {
                throw new IllegalStateException("bytes are left");
            }
            for (short each = 0; each <= 4; each++) {
                answer.append(' ').append(bytes(each, value, each));
            }
        }
        return answer.toString();
    }

    private static String bytes(short prefix, Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(2 + message.size(cache, version));
        buffer.putShort(prefix);
        message.write(new ByteBufferAccessor(buffer), cache, version);
        return HEX.formatHex(buffer.array());
    }
}
