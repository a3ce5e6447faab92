import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.TreeMap;
import java.util.concurrent.ScheduledFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.metadata.properties.MetaProperties;
import org.apache.kafka.metadata.properties.MetaPropertiesVersion;
import org.apache.kafka.metadata.properties.PropertiesUtils;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.checkpoint.CleanShutdownFileHandler;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.PartitionMetadataFile;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.AbortedTxn;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.BatchMetadata;
import org.apache.kafka.storage.internals.log.CompletedTxn;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetMetadata;
import org.apache.kafka.storage.internals.log.ProducerAppendInfo;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.TransactionIndex;
import org.apache.kafka.storage.internals.log.TxnIndexSearchResult;

/**
 * Asks Kafka's own classes what our files mean and how our rules should answer. Reads one command
 * per line, fields parted by blanks, and prints one line of answer for each when an empty line comes.
 */
public class MetadataOracle {
    private static final TopicPartition PARTITION = new TopicPartition("orders", 0);
    private static final LogDirFailureChannel FAILURES = new LogDirFailureChannel(10);

    /** Runs nothing: what Kafka leaves to its scheduler is only the time of a write. */
    private static final Scheduler IDLE = new Scheduler() {
        public void startup() { }

        public void shutdown() { }

        public ScheduledFuture<?> schedule(String name, Runnable task, long delay, long period) {
            return null;
        }

        public void resizeThreadPool(int size) { }
    };

    private ProducerStateManager producers;
    private LeaderEpochFileCache epochs;

    public static void main(String[] arguments) throws Exception {
        MetadataOracle oracle = new MetadataOracle();
        BufferedReader in = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StringBuilder out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            if (line.isEmpty()) {
                System.out.print(out);
                System.out.flush();
                out.setLength(0);
            } else {
                out.append(oracle.answer(line.split(" "))).append('\n');
            }
        }
    }

    private String answer(String[] f) throws Exception {
        switch (f[0]) {
            case "producers-start":
                producers = new ProducerStateManager(PARTITION, new File(f[1]), 900000,
                    new ProducerStateManagerConfig(86400000, false), Time.SYSTEM);
                return "ok";
            case "batch": return batch(f);
            case "marker": return marker(f);
            case "watermark":
                producers.onHighWatermarkUpdated(Long.parseLong(f[1]));
                return "ok";
            case "unstable":
                return producers.firstUnstableOffset().map(o -> "" + o.messageOffset).orElse("none");
            case "snapshot":
                producers.updateMapEndOffset(Long.parseLong(f[1]));
                return producers.takeSnapshot(true).map(File::getName).orElse("none");
            case "read-snapshot": return readSnapshot(new File(f[1]));
            case "epochs-start":
                epochs = new LeaderEpochFileCache(PARTITION,
                    new LeaderEpochCheckpointFile(new File(f[1]), FAILURES), IDLE);
                return epochEntries();
            case "assign":
                epochs.assign(Integer.parseInt(f[1]), Long.parseLong(f[2]));
                return epochEntries();
            case "cut-end":
                epochs.truncateFromEndAsyncFlush(Long.parseLong(f[1]));
                return epochEntries();
            case "cut-start":
                epochs.truncateFromStartAsyncFlush(Long.parseLong(f[1]));
                return epochEntries();
            case "end-for":
                Map.Entry<Integer, Long> end =
                    epochs.endOffsetFor(Integer.parseInt(f[1]), Long.parseLong(f[2]));
                return end.getKey() + " " + end.getValue();
            case "epoch-of":
                return "" + epochs.epochForOffset(Long.parseLong(f[1])).orElse(-1);
            case "read-offsets":
                return "" + new TreeMap<>(byName(
                    new OffsetCheckpointFile(new File(f[1]), FAILURES).read()));
            case "write-offsets": return writeOffsets(f);
            case "read-topic-id":
                return "" + new PartitionMetadataFile(new File(f[1]), FAILURES).read().topicId();
            case "write-topic-id":
                PartitionMetadataFile metadata = new PartitionMetadataFile(new File(f[1]), FAILURES);
                metadata.record(Uuid.fromString(f[2]));
                metadata.maybeFlush();
                return "ok";
            case "read-marker":
                OptionalLong epoch = new CleanShutdownFileHandler(f[1]).read();
                return epoch.isPresent() ? "" + epoch.getAsLong() : "unknown";
            case "write-marker":
                new CleanShutdownFileHandler(f[1]).write(Long.parseLong(f[2]));
                return "ok";
            case "read-meta":
                return "" + new MetaProperties.Builder(
                    PropertiesUtils.readPropertiesFile(f[1])).build();
            case "write-meta":
                PropertiesUtils.writePropertiesFile(new MetaProperties.Builder()
                    .setVersion(MetaPropertiesVersion.fromNumberString(f[2]))
                    .setNodeId(Integer.parseInt(f[3])).setClusterId(f[4])
                    .setDirectoryId(Uuid.fromString(f[5])).build().toProperties(), f[1], true);
                return "ok";
            case "append-abort": return appendAbort(f);
            case "read-aborts": return readAborts(f);
            default: throw new IllegalArgumentException(f[0]);
        }
    }

    /** batch origin producer epoch firstSequence lastSequence firstOffset delta time transactional */
    private String batch(String[] f) {
        AppendOrigin origin = AppendOrigin.valueOf(f[1]);
        long producer = Long.parseLong(f[2]);
        short epoch = Short.parseShort(f[3]);
        int first = Integer.parseInt(f[4]);
        int last = Integer.parseInt(f[5]);
        long offset = Long.parseLong(f[6]);
        long lastOffset = offset + Long.parseLong(f[7]);
        if (origin == AppendOrigin.CLIENT) {
            Optional<ProducerStateEntry> known = producers.lastEntry(producer);
            if (known.isPresent() && known.get().producerEpoch() == epoch) {
                for (BatchMetadata batch : known.get().batchMetadata()) {
                    if (batch.firstSeq() == first && batch.lastSeq() == last) {
                        return "duplicate " + batch.firstOffset() + " " + batch.lastOffset() + " "
                            + batch.timestamp();
                    }
                }
            }
        }
        try {
            ProducerAppendInfo append = producers.prepareUpdate(producer, origin);
            append.appendDataBatch(epoch, first, last, Long.parseLong(f[8]),
                new LogOffsetMetadata(offset), lastOffset, f[9].equals("1"));
            producers.update(append);
            return "ok";
        } catch (RuntimeException refused) {
            return "refused " + Errors.forException(refused).code();
        }
    }

    /** marker origin producer epoch coordinatorEpoch offset time abort version */
    private String marker(String[] f) {
        ControlRecordType type = f[7].equals("1") ? ControlRecordType.ABORT
            : ControlRecordType.COMMIT;
        try {
            ProducerAppendInfo append =
                producers.prepareUpdate(Long.parseLong(f[2]), AppendOrigin.valueOf(f[1]));
            Optional<CompletedTxn> completed = append.appendEndTxnMarker(
                new EndTransactionMarker(type, Integer.parseInt(f[4])), Short.parseShort(f[3]),
                Long.parseLong(f[5]), Long.parseLong(f[6]), Short.parseShort(f[8]));
            producers.update(append);
            if (completed.isEmpty()) {
                return "ok";
            }
            CompletedTxn txn = completed.get();
            long stable = producers.lastStableOffset(txn);
            producers.completeTxn(txn);
            return "completed " + txn.firstOffset() + " " + txn.lastOffset() + " " + stable;
        } catch (RuntimeException refused) {
            return "refused " + Errors.forException(refused).code();
        }
    }

    private static String readSnapshot(File file) throws Exception {
        List<String> lines = new ArrayList<>();
        for (ProducerStateEntry entry : ProducerStateManager.readSnapshot(file)) {
            StringBuilder line = new StringBuilder();
            line.append(entry.producerId()).append(':').append(entry.producerEpoch()).append(':');
            for (BatchMetadata batch : entry.batchMetadata()) {
                line.append(batch.firstSeq()).append('-').append(batch.lastSeq()).append('@')
                    .append(batch.firstOffset()).append('-').append(batch.lastOffset());
            }
            line.append(':').append(entry.lastTimestamp()).append(':')
                .append(entry.coordinatorEpoch()).append(':')
                .append(entry.currentTxnFirstOffset().orElse(-1L));
            lines.add(line.toString());
        }
        return String.join(" ", lines);
    }

    private String epochEntries() {
        StringBuilder out = new StringBuilder("epochs");
        epochs.epochEntries().forEach(entry ->
            out.append(' ').append(entry.epoch()).append('@').append(entry.startOffset()));
        return out.toString();
    }

    private static Map<String, Long> byName(Map<TopicPartition, Long> offsets) {
        Map<String, Long> named = new TreeMap<>();
        offsets.forEach((partition, offset) -> named.put(partition.toString(), offset));
        return named;
    }

    /** write-offsets path (topic partition offset)... */
    private static String writeOffsets(String[] f) throws Exception {
        Map<TopicPartition, Long> offsets = new java.util.HashMap<>();
        for (int i = 2; i < f.length; i += 3) {
            offsets.put(new TopicPartition(f[i], Integer.parseInt(f[i + 1])),
                Long.parseLong(f[i + 2]));
        }
        new OffsetCheckpointFile(new File(f[1]), FAILURES).write(offsets);
        return "ok";
    }

    /** append-abort path producer first last stable */
    private static String appendAbort(String[] f) throws Exception {
        TransactionIndex index = new TransactionIndex(0, new File(f[1]));
        index.append(new AbortedTxn(Long.parseLong(f[2]), Long.parseLong(f[3]),
            Long.parseLong(f[4]), Long.parseLong(f[5])));
        index.flush();
        index.close();
        return "ok";
    }

    /** read-aborts path fetchOffset upperBound */
    private static String readAborts(String[] f) throws Exception {
        TransactionIndex index = new TransactionIndex(0, new File(f[1]));
        index.sanityCheck();
        TxnIndexSearchResult found =
            index.collectAbortedTxns(Long.parseLong(f[2]), Long.parseLong(f[3]));
        StringBuilder out = new StringBuilder(found.isComplete() ? "complete" : "open");
        found.abortedTransactions().forEach(txn -> out.append(' ').append(txn.producerId())
            .append(':').append(txn.firstOffset()).append('-').append(txn.lastOffset())
            .append(':').append(txn.lastStableOffset()));
        index.close();
        return out.toString();
    }
}
