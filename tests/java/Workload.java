import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Writes the same topics, records and committed offsets to any cluster:
 * {@code Workload BOOTSTRAP WORDS...}, where a word is a topic setting (NAME=VALUE) or one of
 * "topics", "plain", "more", "transactions", "await-compaction", "settings" and "await-retention".
 */
public final class Workload {
    private static final long BASE_MS = 1_700_000_000_000L;
    private static final int COMPACTED = 1500;
    private static final Duration PATIENCE = Duration.ofSeconds(100);
    private static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");

    private final String bootstrap;
    private final Map<String, String> topicSettings = new HashMap<>(Map.of("retention.ms", "-1"));

    private Workload(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] args) throws Exception {
        Workload workload = new Workload(args[0]);
        for (String part : List.of(args).subList(1, args.length)) {
            String[] setting = part.split("=", 2);
            if (setting.length == 2) {
                workload.topicSettings.put(setting[0], setting[1]);
                continue;
            }
            switch (part) {
                case "topics" -> workload.topics();
                case "plain" -> workload.plain();
                case "more" -> workload.more();
                case "transactions" -> workload.transactions();
                case "await-compaction" -> workload.awaitCompaction();
                case "settings" -> workload.changeSettings();
                case "await-retention" -> workload.awaitRetention();
                default -> throw new IllegalArgumentException(part);
            }
        }
        System.out.println("written");
    }

    private void plain() throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            createTopics(admin);
            for (String codec : CODECS) {
                write("codec-" + codec, 2, 300, 400, 0, codec);
            }
            write("segments", 2, 1500, 2200, 0, "none");
            write("trimmed", 1, 400, 100, 0, "lz4");
            write("append-time", 1, 200, 100, 0, "zstd");
            write("compacted", 1, COMPACTED, 2200, 40, "none");
            TopicPartition trimmed = new TopicPartition("trimmed", 0);
            admin.deleteRecords(Map.of(trimmed, RecordsToDelete.beforeOffset(123))).all().get();
            for (int group = 0; group < 6; group++) {
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                offsets.put(new TopicPartition("segments", 0),
                    new OffsetAndMetadata(100 + group, Optional.of(0), "note " + group));
                offsets.put(new TopicPartition("codec-gzip", group % 2),
                    new OffsetAndMetadata(group));
                admin.alterConsumerGroupOffsets("group-" + group, offsets).all().get();
            }
            admin.deleteConsumerGroups(List.of("group-5")).all().get();
        }
    }

    private void createTopics(Admin admin) throws Exception {
        List<NewTopic> topics = new ArrayList<>();
        for (String codec : CODECS) {
            topics.add(topic("codec-" + codec, 2, Map.of()));
        }
        topics.add(topic("segments", 2, Map.of()));
        topics.add(topic("trimmed", 1, Map.of()));
        topics.add(topic("append-time", 1, Map.of("message.timestamp.type", "LogAppendTime")));
        topics.add(topic("empty", 1, Map.of()));
        topics.add(topic("compacted", 1, Map.of(
            "cleanup.policy", "compact", "min.cleanable.dirty.ratio", "0.01")));
        create(admin, topics);
    }

    /**
     * Creates topics and waits until each partition has its leader. One that comes while an idempotent
     * producer has several batches under way may refuse the first of them and take the second: the first is
     * out of order from then on.
     */
    private void create(Admin admin, List<NewTopic> topics) throws Exception {
        admin.createTopics(topics).all().get();
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        for (NewTopic topic : topics) {
            Map<TopicPartition, OffsetSpec> ends = new HashMap<>();
            for (int n = 0; n < topic.numPartitions(); n++) {
                ends.put(new TopicPartition(topic.name(), n), OffsetSpec.latest());
            }
            while (true) {
                try {
                    admin.listOffsets(ends).all().get();
                    break;
                } catch (ExecutionException notYet) {
                    if (!(notYet.getCause() instanceof RetriableException)
                        || System.nanoTime() > deadline) {
                        throw notYet;
                    }
                }
            }
        }
    }

    /** The topics without records, and the topic of committed offsets. */
    private void topics() throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            createTopics(admin);
            Map<TopicPartition, OffsetAndMetadata> offsets =
                Map.of(new TopicPartition("empty", 0), new OffsetAndMetadata(0));
            admin.alterConsumerGroupOffsets("first", offsets).all().get();
        }
    }

    /** More records for topics that exist, as a producer with a new id. */
    private void more() throws Exception {
        for (String codec : CODECS) {
            write("codec-" + codec, 2, 50, 400, 0, codec);
        }
    }

    private void transactions() throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            create(admin, List.of(topic("transactions", 1, Map.of())));
        }
        Map<String, Object> settings = settings("none");
        settings.put("transactional.id", "writer");
        try (Producer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            producer.initTransactions();
            for (int round = 0; round < 6; round++) {
                producer.beginTransaction();
                for (int n = 0; n < 10; n++) {
                    producer.send(new ProducerRecord<>(
                        "transactions", 0, BASE_MS + n, null, bytes(round + "/" + n)));
                }
                producer.flush();
                if (round % 2 == 0) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
            }
        }
    }

    /** Waits until the topic "compacted" has lost records. */
    private void awaitCompaction() {
        TopicPartition partition = new TopicPartition("compacted", 0);
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", bootstrap,
            "key.deserializer", ByteArrayDeserializer.class,
            "value.deserializer", ByteArrayDeserializer.class);
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        try (Consumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            consumer.assign(List.of(partition));
            for (int count = COMPACTED; count == COMPACTED;) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("nothing was compacted");
                }
                consumer.seekToBeginning(List.of(partition));
                count = 0;
                while (consumer.position(partition) < COMPACTED) {
                    count += consumer.poll(Duration.ofMillis(500)).count();
                }
            }
        }
    }

    /** Settings that change after the topics were made; one topic is deleted and made again. */
    private void changeSettings() throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(topic("again", 1, Map.of("flush.messages", "7"))))
                .all().get();
            admin.deleteTopics(List.of("again")).all().get();
            admin.createTopics(List.of(topic("again", 1, Map.of("flush.messages", "1000"))))
                .all().get();
            Map<ConfigResource, Collection<AlterConfigOp>> changes = new HashMap<>();
            changes.put(new ConfigResource(ConfigResource.Type.TOPIC, "empty"), List.of(
                set("max.message.bytes", "2000000"), unset("segment.bytes")));
            changes.put(new ConfigResource(ConfigResource.Type.TOPIC, "trimmed"), List.of(
                set("retention.bytes", "999999999"), set("cleanup.policy", "compact,delete")));
            changes.put(new ConfigResource(ConfigResource.Type.BROKER, ""), List.of(
                set("message.max.bytes", "3000000")));
            admin.incrementalAlterConfigs(changes).all().get();
        }
    }

    private static AlterConfigOp set(String name, String value) {
        return new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
    }

    private static AlterConfigOp unset(String name) {
        return new AlterConfigOp(new ConfigEntry(name, ""), AlterConfigOp.OpType.DELETE);
    }

    /** Waits until retention has emptied a topic twice: so every log was looked at meanwhile. */
    private void awaitRetention() throws Exception {
        TopicPartition partition = new TopicPartition("expiring", 0);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            create(admin, List.of(topic("expiring", 1, Map.of("retention.ms", "1000"))));
            long deadline = System.nanoTime() + PATIENCE.toNanos();
            for (int round = 1; round <= 2; round++) {
                write("expiring", 1, 10, 100, 0, "none");
                while (admin.listOffsets(Map.of(partition, OffsetSpec.earliest()))
                    .partitionResult(partition).get().offset() < round * 10L) {
                    if (System.nanoTime() > deadline) {
                        throw new IllegalStateException("nothing expired");
                    }
                }
            }
            admin.deleteTopics(List.of("expiring")).all().get();
        }
    }

    private NewTopic topic(String name, int partitions, Map<String, String> extra) {
        Map<String, String> settings = new HashMap<>(topicSettings);
        settings.putAll(extra);
        return new NewTopic(name, partitions, (short) 1).configs(settings);
    }

    private Map<String, Object> settings(String codec) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("key.serializer", ByteArraySerializer.class);
        settings.put("value.serializer", ByteArraySerializer.class);
        settings.put("compression.type", codec);
        settings.put("enable.idempotence", true);
        settings.put("linger.ms", 5);
        settings.put("batch.size", 8000);
        return settings;
    }

    /** Records with keys, headers, null values and chosen timestamps, some of them out of order. */
    private void write(String topic, int partitions, int count, int size, int keys, String codec)
        throws ExecutionException, InterruptedException {
        Random random = new Random(topic.hashCode());
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (Producer<byte[], byte[]> producer = new KafkaProducer<>(settings(codec))) {
            for (int n = 0; n < count; n++) {
                byte[] key = n % 3 == 0 ? null : bytes("k" + n);
                if (keys > 0) {
                    key = bytes("key-" + n % keys);
                }
                byte[] value = new byte[size / 2 + random.nextInt(size)];
                random.nextBytes(value);
                Arrays.fill(value, 0, value.length / 2, (byte) n);
                if (n % 17 == 5) {
                    value = null;
                }
                RecordHeaders headers = new RecordHeaders();
                if (n % 4 == 0) {
                    headers.add("trace", bytes("t" + n)).add("trace", null).add("ü", new byte[0]);
                }
                long timestamp = BASE_MS + n * 1000L - (n % 10 == 9 ? 30_000L : 0L);
                sent.add(producer.send(new ProducerRecord<>(
                    topic, n % partitions, timestamp, key, value, headers)));
            }
        }
        for (Future<RecordMetadata> one : sent) {
            one.get();
        }
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
