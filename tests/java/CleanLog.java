import java.io.File;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.function.Supplier;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * One round of Kafka's own log cleaner on the directory of a partition, without a broker.
 *
 * Arguments: directory, first dirty offset, time of the round in ms, bytes for the key map, bytes
 * for buffers, then settings of the topic as name=value. Prints the first offset that was not
 * cleaned, the seconds that the round took, and the most memory that was seen in use after it.
 */
public final class CleanLog {
    private CleanLog() {
    }

    /** The time of the round, so that producers are not forgotten for their age. */
    private static Time clock(long now) {
        return new Time() {
            @Override
            public long milliseconds() {
                return now;
            }

            @Override
            public long nanoseconds() {
                return System.nanoTime();
            }

            @Override
            public void sleep(long ms) {
                Time.SYSTEM.sleep(ms);
            }

            @Override
            public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs)
                    throws InterruptedException {
                Time.SYSTEM.waitObject(object, condition, deadlineMs);
            }
        };
    }

    public static void main(String[] arguments) throws Exception {
        File directory = new File(arguments[0]);
        long firstDirty = Long.parseLong(arguments[1]);
        long now = Long.parseLong(arguments[2]);
        Map<String, Object> settings = new HashMap<>(Map.of("cleanup.policy", "compact"));
        for (int i = 5; i < arguments.length; i++) {
            String[] setting = arguments[i].split("=", 2);
            settings.put(setting[0], setting[1]);
        }
        int bufferBytes = Integer.parseInt(arguments[4]);
        LogConfig config = new LogConfig(settings);
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        BrokerTopicStats stats = new BrokerTopicStats();
        try (UnifiedLog log = UnifiedLog.create(directory, config, 0, 0, scheduler, stats,
                clock(now), 900_000, new ProducerStateManagerConfig(Integer.MAX_VALUE, false),
                Integer.MAX_VALUE, new LogDirFailureChannel(1), true, Optional.empty())) {
            log.updateHighWatermark(log.logEndOffset());
            Cleaner cleaner = new Cleaner(0,
                new SkimpyOffsetMap(Integer.parseInt(arguments[3])), bufferBytes / 2,
                config.maxMessageSize(), 0.9,
                new Throttler(Double.MAX_VALUE, 300, "cleaner", "bytes", Time.SYSTEM), Time.SYSTEM,
                partition -> { });
            long bound = Math.min(log.lastStableOffset(), log.activeSegment().baseOffset());
            LogToClean cleanable = new LogToClean(log, firstDirty, bound, true);
            long start = System.nanoTime();
            Map.Entry<Long, CleanerStats> result = cleaner.doClean(cleanable, now);
            double seconds = (System.nanoTime() - start) / 1e9;
            Runtime machine = Runtime.getRuntime();
            System.out.printf("{\"cleaned_to\": %d, \"seconds\": %f, \"memory\": %d}%n",
                result.getKey(), seconds, machine.totalMemory() - machine.freeMemory());
        } finally {
            stats.close();
            scheduler.shutdown();
        }
    }
}
