import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Writes "0", "1", ... to the partitions in turn:
 * {@code Spread BOOTSTRAP TOPIC PARTITIONS COUNT}.
 */
public final class Spread {
    public static void main(String[] args) {
        int partitions = Integer.parseInt(args[2]);
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", args[0],
            "key.serializer", StringSerializer.class,
            "value.serializer", StringSerializer.class);
        try (Producer<String, String> producer = new KafkaProducer<>(settings)) {
            for (int n = 0; n < Integer.parseInt(args[3]); n++) {
                producer.send(new ProducerRecord<>(args[1], n % partitions, null, "" + n));
            }
        }
    }
}
