import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreatePartitionsOptions;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.ListConfigResourcesOptions;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringSerializer;

/** Asks for everything that Kafka's Admin client knows; prints the answers as one JSON object. */
public final class AdminChecks {
    private static final String TOPIC = "admin-checks";
    private static final ConfigResource SETTINGS =
        new ConfigResource(ConfigResource.Type.TOPIC, TOPIC);

    private final Map<String, Object> found = new TreeMap<>();
    private final String bootstrap;
    private final Admin admin;

    private AdminChecks(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(Map.of(
            "bootstrap.servers", bootstrap,
            "default.api.timeout.ms", 8000,
            "request.timeout.ms", 4000));
    }

    public static void main(String[] args) throws Exception {
        AdminChecks checks = new AdminChecks(args[0]);
        try {
            checks.cluster();
            checks.topics();
            checks.settings();
            checks.offsets();
            checks.groups();
            checks.refusals();
            checks.removals();
        } finally {
            checks.admin.close();
        }
        System.out.println(new ObjectMapper().writeValueAsString(checks.found));
    }

    /** Notes an answer, or the name of the error that was given instead. */
    private void note(String name, Callable<Object> question) throws Exception {
        Object answer;
        try {
            answer = question.call();
        } catch (ExecutionException failure) {
            answer = failure.getCause().getClass().getSimpleName();
        } catch (RuntimeException failure) {
            answer = failure.getClass().getSimpleName();
        }
        found.put(name, answer);
    }

    private static Object done(KafkaFuture<?> future) throws Exception {
        future.get();
        return "done";
    }

    private void cluster() throws Exception {
        DescribeClusterOptions options =
            new DescribeClusterOptions().includeAuthorizedOperations(true);
        note("cluster nodes", () -> admin.describeCluster(options).nodes().get().stream()
            .map(node -> node.id() + " " + node.host() + ":" + node.port()).toList());
        note("cluster controller", () -> admin.describeCluster(options).controller().get().id());
        note("cluster id", () -> admin.describeCluster(options).clusterId().get());
        note("cluster operations", () ->
            names(admin.describeCluster(options).authorizedOperations().get()));
        note("log directories", () -> admin.describeLogDirs(List.of(1)).allDescriptions().get()
            .get(1).values().stream().map(directory -> directory.error() == null
                && directory.totalBytes().getAsLong() >= directory.usableBytes().getAsLong()
                && directory.usableBytes().getAsLong() > 0).toList());
    }

    private void topics() throws Exception {
        NewTopic assigned = new NewTopic(TOPIC, Map.of(0, List.of(1), 1, List.of(1)))
            .configs(Map.of("retention.ms", "1234567", "cleanup.policy", "delete"));
        note("create, validate only", () -> done(admin.createTopics(
            List.of(assigned), new CreateTopicsOptions().validateOnly(true)).all()));
        note("topics before", () -> admin.listTopics().names().get().contains(TOPIC));
        CreateTopicsResult created = admin.createTopics(List.of(assigned));
        note("create", () -> List.of(
            created.numPartitions(TOPIC).get(),
            created.replicationFactor(TOPIC).get(),
            created.config(TOPIC).get().get("retention.ms").value()));
        Uuid id = created.topicId(TOPIC).get();
        note("create again", () -> done(admin.createTopics(List.of(assigned)).all()));
        note("create with a gap", () -> done(admin.createTopics(
            List.of(new NewTopic("gap", Map.of(0, List.of(1), 2, List.of(1))))).all()));
        note("create with defaults", () -> {
            NewTopic topic = new NewTopic("defaults", Optional.empty(), Optional.empty());
            return admin.createTopics(List.of(topic)).numPartitions("defaults").get();
        });
        DescribeTopicsOptions options =
            new DescribeTopicsOptions().includeAuthorizedOperations(true);
        note("describe by id", () -> {
            TopicDescription topic = admin.describeTopics(
                TopicCollection.ofTopicIds(List.of(id)), options).allTopicIds().get().get(id);
            return List.of(topic.name(), topic.partitions().size(), topic.isInternal(),
                names(topic.authorizedOperations()));
        });
        note("describe by unknown id", () -> done(admin.describeTopics(
            TopicCollection.ofTopicIds(List.of(Uuid.randomUuid()))).allTopicIds()));
        note("describe by name", () -> admin.describeTopics(List.of(TOPIC)).allTopicNames().get()
            .get(TOPIC).topicId().equals(id));
        note("describe nothing", () ->
            done(admin.describeTopics(List.of("nothing")).allTopicNames()));
        note("list", () ->
            admin.listTopics().namesToListings().get().get(TOPIC).topicId().equals(id));
        NewPartitions four = NewPartitions.increaseTo(4, List.of(List.of(1), List.of(1)));
        note("grow, validate only", () -> done(admin.createPartitions(
            Map.of(TOPIC, four), new CreatePartitionsOptions().validateOnly(true)).all()));
        note("grow", () -> done(admin.createPartitions(Map.of(TOPIC, four)).all()));
        note("grow again", () -> done(admin.createPartitions(Map.of(TOPIC, four)).all()));
        note("grow to an unknown broker", () -> done(admin.createPartitions(
            Map.of(TOPIC, NewPartitions.increaseTo(5, List.of(List.of(8))))).all()));
        note("partitions", () -> admin.describeTopics(List.of(TOPIC)).allTopicNames().get()
            .get(TOPIC).partitions().size());
    }

    private Config describe(ConfigResource resource) throws Exception {
        DescribeConfigsOptions options =
            new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        return admin.describeConfigs(List.of(resource), options).all().get().get(resource);
    }

    private Object alter(
        ConfigResource resource, String name, String value, AlterConfigOp.OpType how)
        throws Exception {
        Collection<AlterConfigOp> change =
            List.of(new AlterConfigOp(new ConfigEntry(name, value), how));
        return done(admin.incrementalAlterConfigs(Map.of(resource, change)).all());
    }

    private void settings() throws Exception {
        note("setting", () -> {
            ConfigEntry entry = describe(SETTINGS).get("retention.ms");
            return List.of(entry.value(), entry.source().name(), entry.type().name(),
                entry.isReadOnly(), entry.isSensitive(), entry.synonyms().stream().limit(1)
                    .map(synonym -> synonym.source() + " " + synonym.name()).toList());
        });
        note("settings documented", () -> describe(SETTINGS).entries().stream()
            .filter(entry -> entry.documentation() == null).map(ConfigEntry::name).toList());
        note("set", () -> alter(SETTINGS, "segment.ms", "5000", AlterConfigOp.OpType.SET));
        note("append", () ->
            alter(SETTINGS, "cleanup.policy", "compact", AlterConfigOp.OpType.APPEND));
        note("appended", () -> describe(SETTINGS).get("cleanup.policy").value());
        note("subtract", () ->
            alter(SETTINGS, "cleanup.policy", "compact", AlterConfigOp.OpType.SUBTRACT));
        note("subtracted", () -> describe(SETTINGS).get("cleanup.policy").value());
        note("append to what is no list", () ->
            alter(SETTINGS, "segment.ms", "1", AlterConfigOp.OpType.APPEND));
        note("delete", () -> alter(SETTINGS, "segment.ms", "", AlterConfigOp.OpType.DELETE));
        note("deleted", () -> describe(SETTINGS).get("segment.ms").source().name());
        note("set nonsense", () -> alter(SETTINGS, "no.such", "1", AlterConfigOp.OpType.SET));
        note("set out of range", () ->
            alter(SETTINGS, "min.insync.replicas", "0", AlterConfigOp.OpType.SET));
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
        note("broker setting", () -> {
            ConfigEntry entry = describe(broker).get("log.dirs");
            return List.of(entry.source().name(), entry.isReadOnly());
        });
        note("sensitive", () -> {
            ConfigEntry entry = describe(broker).get("ssl.key.password");
            return List.of(entry.isSensitive(), entry.value() == null);
        });
        note("settings of no topic", () ->
            describe(new ConfigResource(ConfigResource.Type.TOPIC, "nothing")));
        note("resources", () -> admin.listConfigResources(
            Set.of(ConfigResource.Type.BROKER), new ListConfigResourcesOptions()).all().get()
            .stream().map(resource -> resource.type() + " " + resource.name()).toList());
    }

    private void offsets() throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap,
            "key.serializer", StringSerializer.class, "value.serializer", StringSerializer.class);
        try (Producer<String, String> producer = new KafkaProducer<>(settings)) {
            for (long time : new long[] {1000, 3000, 9000, 7000}) {
                producer.send(new ProducerRecord<>(TOPIC, 0, time, "k", "v" + time)).get();
            }
        }
        TopicPartition partition = new TopicPartition(TOPIC, 0);
        Map<String, OffsetSpec> specs = Map.of(
            "earliest", OffsetSpec.earliest(),
            "latest", OffsetSpec.latest(),
            "max timestamp", OffsetSpec.maxTimestamp(),
            "earliest local", OffsetSpec.earliestLocal(),
            "latest tiered", OffsetSpec.latestTiered(),
            "earliest pending upload", OffsetSpec.earliestPendingUpload(),
            "timestamp 2000", OffsetSpec.forTimestamp(2000),
            "timestamp 9001", OffsetSpec.forTimestamp(9001));
        for (Map.Entry<String, OffsetSpec> spec : specs.entrySet()) {
            note("offset " + spec.getKey(), () -> {
                var info = admin.listOffsets(Map.of(partition, spec.getValue()))
                    .partitionResult(partition).get();
                return List.of(info.offset(), info.timestamp(), info.leaderEpoch().orElse(-1));
            });
        }
        TopicPartition missing = new TopicPartition(TOPIC, 3);
        note("delete records", () -> admin.deleteRecords(
            Map.of(partition, RecordsToDelete.beforeOffset(1))).lowWatermarks().get(partition)
            .get().lowWatermark());
        note("delete all records", () -> admin.deleteRecords(
            Map.of(missing, RecordsToDelete.beforeOffset(-1))).lowWatermarks().get(missing)
            .get().lowWatermark());
        note("delete too many records", () -> done(admin.deleteRecords(
            Map.of(partition, RecordsToDelete.beforeOffset(99))).all()));
    }

    private void groups() throws Exception {
        TopicPartition first = new TopicPartition(TOPIC, 0);
        TopicPartition second = new TopicPartition(TOPIC, 1);
        note("alter group offsets", () -> done(admin.alterConsumerGroupOffsets(
            "admin-group", Map.of(first, new OffsetAndMetadata(3, Optional.of(0), "seen"),
            second, new OffsetAndMetadata(8))).all()));
        note("alter group offsets of nothing", () -> done(admin.alterConsumerGroupOffsets(
            "admin-group",
            Map.of(new TopicPartition("nothing", 0), new OffsetAndMetadata(1))).all()));
        note("group offsets", () -> {
            Map<String, Object> committed = new TreeMap<>();
            admin.listConsumerGroupOffsets("admin-group").partitionsToOffsetAndMetadata().get()
                .forEach((partition, offset) -> committed.put(partition.toString(),
                    List.of(offset.offset(), offset.metadata(), offset.leaderEpoch().orElse(-1))));
            return committed;
        });
        note("offsets of several groups", () -> admin.listConsumerGroupOffsets(Map.of(
            "admin-group", new ListConsumerGroupOffsetsSpec().topicPartitions(List.of(second)),
            "nobody", new ListConsumerGroupOffsetsSpec())).all().get().entrySet().stream()
            .map(entry -> entry.getKey() + " " + entry.getValue().size()).sorted().toList());
        note("list groups", () -> admin.listGroups().all().get().stream()
            .filter(group -> group.groupId().equals("admin-group"))
            .map(group -> group.type().get() + " " + group.groupState().get()
                + " '" + group.protocol() + "'").toList());
        note("describe group", () -> {
            var group = admin.describeConsumerGroups(List.of("admin-group"))
                .all().get().get("admin-group");
            return List.of(group.groupState().name(), group.type().name(), group.coordinator().id(),
                group.members().size());
        });
        note("describe classic group", () -> admin.describeClassicGroups(List.of("admin-group"))
            .all().get().get("admin-group").state().name());
        note("describe nobody", () -> done(admin.describeConsumerGroups(List.of("nobody")).all()));
        note("delete group offsets", () ->
            done(admin.deleteConsumerGroupOffsets("admin-group", Set.of(first)).all()));
        note("group offsets left", () -> admin.listConsumerGroupOffsets("admin-group")
            .partitionsToOffsetAndMetadata().get().keySet().toString());
        note("delete groups", () -> done(admin.deleteConsumerGroups(List.of("admin-group")).all()));
        note("delete nobody", () -> done(admin.deleteConsumerGroups(List.of("nobody")).all()));
    }

    private void removals() throws Exception {
        Uuid id = admin.describeTopics(List.of(TOPIC)).allTopicNames().get().get(TOPIC).topicId();
        note("delete by id", () ->
            done(admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all()));
        note("delete by id again", () ->
            done(admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all()));
        note("delete by name", () -> done(admin.deleteTopics(List.of("defaults")).all()));
        note("delete nothing", () -> done(admin.deleteTopics(List.of("nothing")).all()));
        note("topics after", () -> {
            Set<String> names = new TreeSet<>(admin.listTopics().names().get());
            return names.contains(TOPIC) || names.contains("defaults");
        });
    }

    private void refusals() throws Exception {
        TopicPartition partition = new TopicPartition(TOPIC, 0);
        note("producers", () -> done(admin.describeProducers(List.of(partition)).all()));
        note("transactions", () -> done(admin.listTransactions().all()));
        note("elect who leads", () ->
            done(admin.electLeaders(ElectionType.PREFERRED, Set.of(partition)).all()));
        note("list reassignments", () ->
            done(admin.listPartitionReassignments().reassignments()));
        note("access control without an authorizer", () ->
            done(admin.describeAcls(AclBindingFilter.ANY).values()));
        note("refused: quorum", () -> done(admin.describeMetadataQuorum().quorumInfo()));
        note("credentials", () -> done(admin.describeUserScramCredentials().all()));
        note("share groups", () ->
            done(admin.describeShareGroups(List.of("share")).all()));
    }

    private static List<String> names(Set<? extends Enum<?>> operations) {
        return operations.stream().map(Enum::name).sorted().toList();
    }
}
