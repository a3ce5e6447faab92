import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.function.BooleanSupplier;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.ShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Produces and consumes in all the ways of the Java client; prints the answers as JSON. */
public final class ClientChecks {
    private static final String TOPIC = "client-checks";
    private static final Duration MOMENT = Duration.ofMillis(100);

    private final Map<String, Object> found = new TreeMap<>();
    private final String bootstrap;

    private ClientChecks(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] args) throws Exception {
        ClientChecks checks = new ClientChecks(args[0]);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", args[0]))) {
            admin.createTopics(List.of(
                new NewTopic(TOPIC, 4, (short) 1),
                new NewTopic("client-small", 1, (short) 1).configs(
                    Map.of("max.message.bytes", "1000")))).all().get();
        }
        checks.produce();
        checks.assigned();
        checks.cooperative();
        checks.staticMembers();
        checks.pattern();
        checks.newerProtocols();
        System.out.println(new ObjectMapper().writeValueAsString(checks.found));
    }

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

    private Producer<String, String> producer(Object... settings) {
        return new KafkaProducer<>(
            settings(settings), new StringSerializer(), new StringSerializer());
    }

    private Consumer<String, String> consumer(Object... settings) {
        return new KafkaConsumer<>(
            settings(settings), new StringDeserializer(), new StringDeserializer());
    }

    private Map<String, Object> settings(Object... pairs) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        for (int n = 0; n < pairs.length; n += 2) {
            settings.put((String) pairs[n], pairs[n + 1]);
        }
        return settings;
    }

    private static void until(BooleanSupplier condition, String what) {
        long deadline = System.nanoTime() + Duration.ofSeconds(30).toNanos();
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("never: " + what);
            }
        }
    }

    private void produce() throws Exception {
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            note("idempotent " + codec, () -> {
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                // Small batches and several requests in flight, each with four partitions.
                try (Producer<String, String> producer = producer("compression.type", codec,
                    "enable.idempotence", true, "linger.ms", 2, "batch.size", 500)) {
                    for (int n = 0; n < 400; n++) {
                        sent.add(producer.send(new ProducerRecord<>(
                            TOPIC, n % 4, 1_000_000_000_000L + n, "k" + n, codec + n)));
                    }
                }
                Map<Integer, Long> last = new TreeMap<>();
                for (Future<RecordMetadata> one : sent) {
                    RecordMetadata at = one.get();
                    Long before = last.put(at.partition(), at.offset());
                    if (before != null && at.offset() != before + 1) {
                        throw new IllegalStateException(before + " and then " + at.offset());
                    }
                }
                return new ArrayList<>(last.values());
            });
        }
        note("acks 0", () -> {
            try (Producer<String, String> producer =
                producer("acks", "0", "enable.idempotence", false)) {
                return producer.send(new ProducerRecord<>(TOPIC, 0, "acks", "0")).get().hasOffset();
            }
        });
        note("acks 1", () -> {
            try (Producer<String, String> producer =
                producer("acks", "1", "enable.idempotence", false)) {
                return producer.send(new ProducerRecord<>(TOPIC, 0, "acks", "1")).get().offset();
            }
        });
        note("too large", () -> {
            try (Producer<String, String> producer = producer()) {
                return producer.send(new ProducerRecord<>("client-small", "x".repeat(2000))).get();
            }
        });
        note("after too large", () -> {
            try (Producer<String, String> producer = producer()) {
                try {
                    producer.send(new ProducerRecord<>("client-small", "x".repeat(2000))).get();
                } catch (ExecutionException tooLarge) {
                    return producer.send(new ProducerRecord<>("client-small", "x")).get().offset();
                }
                return "it was not too large";
            }
        });
        note("bad name", () -> {
            try (Producer<String, String> producer = producer()) {
                return producer.send(new ProducerRecord<>("bad name", "x")).get();
            }
        });
        note("partitions", () -> {
            try (Producer<String, String> producer = producer()) {
                return producer.partitionsFor(TOPIC).size();
            }
        });
    }

    private void assigned() throws Exception {
        TopicPartition first = new TopicPartition(TOPIC, 0);
        TopicPartition second = new TopicPartition(TOPIC, 1);
        List<TopicPartition> both = List.of(first, second);
        try (Consumer<String, String> consumer = consumer("group.id", "assigned",
            "enable.auto.commit", false, "auto.offset.reset", "none", "max.poll.records", 50,
            "max.partition.fetch.bytes", 300, "isolation.level", "read_committed")) {
            consumer.assign(both);
            note("no offset", () -> consumer.position(first));
            note("beginnings", () -> sorted(consumer.beginningOffsets(both)));
            note("ends", () -> sorted(consumer.endOffsets(both)));
            note("by time", () -> {
                Map<TopicPartition, Long> times =
                    Map.of(first, 1_000_000_000_200L, second, 2_000_000_000_000L);
                var answers = consumer.offsetsForTimes(times);
                return List.of(answers.get(first).offset(), answers.get(first).timestamp(),
                    String.valueOf(answers.get(second)));
            });
            note("committed before", () ->
                String.valueOf(consumer.committed(Set.of(first)).get(first)));
            note("seek", () -> {
                consumer.seek(first, 498);
                consumer.seekToEnd(List.of(second));
                List<Long> offsets = new ArrayList<>();
                until(() -> {
                    consumer.poll(MOMENT).forEach(record -> offsets.add(record.offset()));
                    return offsets.size() >= 4;
                }, "four records");
                return offsets;
            });
            note("pause", () -> {
                consumer.pause(List.of(first));
                consumer.seekToBeginning(both);
                Set<Integer> partitions = new TreeSet<>();
                long[] count = {0};
                until(() -> {
                    for (ConsumerRecord<String, String> record : consumer.poll(MOMENT)) {
                        partitions.add(record.partition());
                        count[0]++;
                    }
                    return count[0] >= 500;
                }, "the whole second partition");
                consumer.resume(List.of(first));
                until(() -> {
                    consumer.poll(MOMENT).forEach(record -> partitions.add(record.partition()));
                    return partitions.size() == 2;
                }, "the first partition");
                return partitions;
            });
            note("lag", () -> {
                consumer.seek(second, 490);
                until(() -> {
                    consumer.poll(MOMENT);
                    return consumer.currentLag(second).orElse(-1) == 0;
                }, "no lag");
                return consumer.position(second);
            });
            note("commit", () -> {
                consumer.commitSync(Map.of(first, new OffsetAndMetadata(77, "mine")));
                OffsetAndMetadata back = consumer.committed(Set.of(first)).get(first);
                return List.of(back.offset(), back.metadata());
            });
            note("out of range", () -> {
                consumer.seek(first, 100_000);
                until(() -> consumer.poll(MOMENT).count() < 0, "records beyond the end");
                return null;
            });
        }
    }

    private static List<Long> sorted(Map<TopicPartition, Long> offsets) {
        Map<String, Long> byName = new TreeMap<>();
        offsets.forEach((partition, offset) -> byName.put(partition.toString(), offset));
        return new ArrayList<>(byName.values());
    }

    /** A member's view of what it has, what it was given, and what was taken from it. */
    private final class Member implements ConsumerRebalanceListener, AutoCloseable {
        final Consumer<String, String> consumer;
        final List<String> log = new ArrayList<>();

        Member(Object... settings) {
            consumer = consumer(settings);
            consumer.subscribe(List.of(TOPIC), this);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            log.add("-" + partitions.size());
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            log.add("+" + partitions.size());
        }

        int count() {
            consumer.poll(MOMENT);
            return consumer.assignment().size();
        }

        @Override
        public void close() {
            consumer.close();
        }
    }

    private void cooperative() throws Exception {
        Object[] settings = {"group.id", "cooperative", "auto.offset.reset", "earliest",
            "partition.assignment.strategy",
            "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
            "heartbeat.interval.ms", 100, "session.timeout.ms", 10000};
        note("cooperative", () -> {
            try (Member first = new Member(settings)) {
                until(() -> first.count() == 4, "all for the first");
                Set<TopicPartition> before = new HashSet<>(first.consumer.assignment());
                try (Member second = new Member(settings)) {
                    until(() -> (first.count() == 2) & (second.count() == 2), "two for each");
                    before.removeAll(first.consumer.assignment());
                    if (!before.equals(second.consumer.assignment())) {
                        throw new IllegalStateException("not what the first gave away");
                    }
                }
                until(() -> first.count() == 4, "all for the first again");
                first.log.removeIf("+0"::equals);
                return first.log;
            }
        });
    }

    private void staticMembers() throws Exception {
        Object[] settings = {"group.id", "static", "auto.offset.reset", "earliest",
            "group.instance.id", "only", "heartbeat.interval.ms", 100, "session.timeout.ms", 10000};
        note("static", () -> {
            int generation;
            try (Member member = new Member(settings)) {
                until(() -> member.count() == 4, "an assignment");
                generation = member.consumer.groupMetadata().generationId();
            }
            try (Member member = new Member(settings)) {
                until(() -> member.count() == 4, "the assignment again");
                return member.consumer.groupMetadata().generationId() - generation;
            }
        });
        note("static, twice", () -> {
            try (Member older = new Member(settings)) {
                until(() -> older.count() == 4, "an assignment");
                try (Member newer = new Member(settings)) {
                    until(() -> newer.count() == 4, "the assignment for the newer");
                    until(() -> older.count() < 0, "anything from the older");
                    return null;
                }
            }
        });
    }

    private void pattern() throws Exception {
        note("pattern", () -> {
            try (Consumer<String, String> consumer =
                consumer("group.id", "pattern", "auto.offset.reset", "earliest")) {
                consumer.subscribe(Pattern.compile("client-.*"));
                until(() -> {
                    consumer.poll(MOMENT);
                    return consumer.assignment().size() == 5;
                }, "both topics");
                return consumer.groupMetadata().memberId().startsWith("consumer-pattern-");
            }
        });
        note("transactional", () -> {
            try (Producer<String, String> producer =
                producer("transactional.id", "writer", "max.block.ms", 8000)) {
                producer.initTransactions();
                return "begun";
            }
        });
    }

    private void newerProtocols() throws Exception {
        note("group.protocol=consumer", () -> {
            try (Consumer<String, String> consumer = consumer("group.id", "new-protocol",
                "group.protocol", "consumer", "auto.offset.reset", "earliest")) {
                consumer.subscribe(List.of(TOPIC));
                until(() -> !consumer.poll(MOMENT).isEmpty(), "a record or an error");
                return "records";
            }
        });
        note("share group", () -> {
            try (Producer<String, String> producer = producer();
                ShareConsumer<String, String> consumer = new KafkaShareConsumer<>(
                settings("group.id", "share"), new StringDeserializer(),
                new StringDeserializer())) {
                consumer.subscribe(List.of(TOPIC));
                until(() -> {
                    producer.send(new ProducerRecord<>(TOPIC, "for a worker"));
                    return !consumer.poll(MOMENT).isEmpty();
                }, "a record or an error");
                return "records";
            }
        });
    }
}
