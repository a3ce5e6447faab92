import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * Counts words exactly once, with every step of every count in the output:
 * {@code WordCount BOOTSTRAP INPUT OUTPUT STATE-DIRECTORY}. Ends when its standard input does.
 */
public final class WordCount {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "word-count");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, args[3]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 3);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        // Without a cache each record gives one record of output.
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        settings.put(StreamsConfig.consumerPrefix("session.timeout.ms"), 10_000);
        settings.put(StreamsConfig.producerPrefix("transaction.timeout.ms"), 20_000);

        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(args[1])
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
            .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counts"))
            .toStream()
            .to(args[2], Produced.with(Serdes.String(), Serdes.Long()));
        try (KafkaStreams streams = new KafkaStreams(builder.build(), settings)) {
            CountDownLatch running = new CountDownLatch(1);
            streams.setStateListener((now, before) -> {
                System.out.println(now);
                if (now == KafkaStreams.State.RUNNING) {
                    running.countDown();
                }
            });
            streams.setUncaughtExceptionHandler(error -> {
                System.out.println("replaced a thread: " + error);
                return StreamThreadExceptionResponse.REPLACE_THREAD;
            });
            streams.start();
            while (System.in.read() >= 0) {
                // until its end
            }
            streams.close(Duration.ofSeconds(30));
        }
    }
}
