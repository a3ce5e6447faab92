import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConfigEntry.ConfigSource;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.config.ConfigResource.Type;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Prints all that a client can learn of a cluster's topics and groups as JSON, so that two clusters
 * can be compared: {@code Contents BOOTSTRAP [TOPIC...]}. Internal topics are left out.
 */
public final class Contents {
    private static final long BASE_MS = 1_700_000_000_000L;

    private final String bootstrap;
    private final Map<String, Object> found = new TreeMap<>();

    private Contents(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] args) throws Exception {
        Contents contents = new Contents(args[0]);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", args[0]))) {
            Set<String> wanted = new TreeSet<>(List.of(args).subList(1, args.length));
            if (wanted.isEmpty()) {
                wanted.addAll(admin.listTopics().names().get());
            }
            List<TopicPartition> partitions = new ArrayList<>();
            Map<String, String> ids = new TreeMap<>();
            for (TopicDescription topic
                : admin.describeTopics(wanted).allTopicNames().get().values()) {
                ids.put(topic.name(), topic.topicId().toString());
                topic.partitions().forEach(
                    p -> partitions.add(new TopicPartition(topic.name(), p.partition())));
            }
            contents.found.put("topic ids", ids);
            contents.settings(admin, ids.keySet());
            contents.offsets(admin, partitions);
            contents.groups(admin);
            for (String isolation : List.of("read_committed", "read_uncommitted")) {
                contents.found.put(isolation, contents.records(partitions, isolation));
            }
        }
        System.out.println(new ObjectMapper()
            .configure(SerializationFeature.ORDER_MAP_ENTRIES_BY_KEYS, true)
            .writeValueAsString(contents.found));
    }

    private void offsets(Admin admin, Collection<TopicPartition> partitions) throws Exception {
        Map<String, OffsetSpec> specs = new TreeMap<>(Map.of(
            "earliest", OffsetSpec.earliest(),
            "earliest local", OffsetSpec.earliestLocal(),
            "latest", OffsetSpec.latest(),
            "max timestamp", OffsetSpec.maxTimestamp(),
            "at the base", OffsetSpec.forTimestamp(BASE_MS),
            "in the middle", OffsetSpec.forTimestamp(BASE_MS + 123_456),
            "just after it", OffsetSpec.forTimestamp(BASE_MS + 133_001),
            "after the end", OffsetSpec.forTimestamp(BASE_MS + 1_000_000_000)));
        for (Map.Entry<String, OffsetSpec> spec : specs.entrySet()) {
            Map<TopicPartition, OffsetSpec> asked = new HashMap<>();
            partitions.forEach(partition -> asked.put(partition, spec.getValue()));
            Map<String, Object> answers = new TreeMap<>();
            for (Map.Entry<TopicPartition, ListOffsetsResultInfo> answer
                : admin.listOffsets(asked).all().get().entrySet()) {
                ListOffsetsResultInfo info = answer.getValue();
                answers.put(answer.getKey().toString(), List.of(info.offset(), info.timestamp()));
            }
            found.put("offsets " + spec.getKey(), answers);
        }
    }

    /** What was set for the topics themselves, and all that each setting could be from. */
    private void settings(Admin admin, Collection<String> topics) throws Exception {
        List<ConfigResource> resources = new ArrayList<>();
        topics.forEach(name -> resources.add(new ConfigResource(Type.TOPIC, name)));
        DescribeConfigsOptions options = new DescribeConfigsOptions().includeSynonyms(true);
        Map<String, Object> settings = new TreeMap<>();
        admin.describeConfigs(resources, options).all().get().forEach((resource, config) -> {
            Map<String, String> set = new TreeMap<>();
            config.entries().stream()
                .filter(entry -> entry.source() == ConfigSource.DYNAMIC_TOPIC_CONFIG)
                .forEach(entry -> set.put(entry.name(), entry.synonyms().toString()));
            settings.put(resource.name(), set);
        });
        found.put("settings", settings);
    }

    private void groups(Admin admin) throws Exception {
        Map<String, Object> groups = new TreeMap<>();
        for (GroupListing group : admin.listGroups().all().get()) {
            Map<String, Object> committed = new TreeMap<>();
            admin.listConsumerGroupOffsets(group.groupId()).partitionsToOffsetAndMetadata().get()
                .forEach((partition, offset) -> committed.put(partition.toString(),
                    List.of(offset.offset(), offset.metadata(), offset.leaderEpoch().toString())));
            groups.put(group.groupId(), committed);
        }
        found.put("groups", groups);
    }

    private Map<String, List<Object>> records(List<TopicPartition> partitions, String isolation) {
        Map<String, List<Object>> records = new TreeMap<>();
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", bootstrap,
            "key.deserializer", ByteArrayDeserializer.class,
            "value.deserializer", ByteArrayDeserializer.class,
            "check.crcs", true,
            "isolation.level", isolation,
            "auto.offset.reset", "none",
            "max.poll.records", 5000);
        try (Consumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            long deadline = System.nanoTime() + Duration.ofSeconds(40).toNanos();
            while (ends.entrySet().stream().anyMatch(
                end -> consumer.position(end.getKey()) < end.getValue())) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("still not at the ends " + ends);
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    String partition = record.topic() + "-" + record.partition();
                    records.computeIfAbsent(partition, name -> new ArrayList<>())
                        .add(describe(record));
                }
            }
        }
        return records;
    }

    private static String describe(ConsumerRecord<byte[], byte[]> record) {
        StringBuilder text = new StringBuilder();
        text.append(record.offset()).append(' ')
            .append(record.timestampType()).append(' ').append(record.timestamp()).append(' ')
            .append(record.leaderEpoch()).append(' ')
            .append(Arrays.toString(record.key())).append(' ')
            .append(record.value() == null ? "null" : record.value().length).append(' ')
            .append(Arrays.hashCode(record.value()));
        for (Header header : record.headers()) {
            text.append(' ').append(header.key()).append('=')
                .append(Arrays.toString(header.value()));
        }
        return text.toString();
    }
}
