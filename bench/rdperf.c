/*
 * librdkafka as a client (producer, consumer) and as a broker (its mock cluster), without Python
 * in the way: the client is what most non-Java programs use, the mock is the bound for it.
 *
 *   rdperf produce --brokers H:P --topic T [options] [--set name=value ...]
 *   rdperf consume --brokers H:P --topic T [options] [--set name=value ...]
 *   rdperf mock                                  serves until its standard input ends
 *
 * The producer stops after --messages or --milliseconds, whichever is first, and waits for every
 * delivery report; one failed delivery ends the run with exit status 1. The consumer reads
 * --messages from the beginning of all partitions and is timed from its first message on, so that
 * bootstrapping is not counted. The mock reads lines `topic NAME PARTITIONS` and answers `ok`: it
 * stores messages in memory (about 5 MB per partition), checks no CRC and touches no disk.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rdkafka_abi.h"

enum { PAYLOAD_POOL_BYTES = 1 << 20, CONSUME_BATCH = 10000, STALL_MS = 15000 };

static struct {
    const char *brokers, *topic;
    int64_t partitions, record_bytes, messages, milliseconds;
} opt = {.partitions = 4, .record_bytes = 100, .messages = 1000000, .milliseconds = 60000};

static struct { uint64_t delivered; double last_at; } progress;

__attribute__((noreturn, format(printf, 1, 2)))
static void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("rdperf: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    exit(1);
}

__attribute__((noreturn)) static void fail_last(void) { fail("%s", rd_kafka_err2str(rd_kafka_last_error())); }

static double seconds_of(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char error[512];
    if (rd_kafka_conf_set(conf, name, value, error, sizeof error) != RD_KAFKA_CONF_OK) fail("%s", error);
}

static rd_kafka_t *client_of(int type, rd_kafka_conf_t *conf) {
    char error[512];
    rd_kafka_t *client = rd_kafka_new(type, conf, error, sizeof error);
    if (!client) fail("%s", error);
    return client;
}

static void report(double seconds, uint64_t messages) {
    if (!messages || seconds <= 0) fail("nothing was measured");
    double rate = (double)messages / seconds;
    uint64_t bytes = messages * (uint64_t)opt.record_bytes;
    printf("{\"seconds\": %.6f, \"records\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"total_bytes\": %" PRIu64
           ", \"records_per_second\": %.1f, \"bytes_per_second\": %.1f, \"client_cpu_seconds\": %.4f"
           ", \"librdkafka\": \"%s\"}\n",
           seconds, messages, bytes, bytes, rate, rate * (double)opt.record_bytes, seconds_of(CLOCK_PROCESS_CPUTIME_ID), rd_kafka_version_str());
}

/* ---- producer ----------------------------------------------------------------------------- */

static void on_delivery(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    (void)client, (void)opaque;
    if (message->err) fail("a message was not delivered: %s", rd_kafka_err2str(message->err));
    progress.delivered++;
}

/* Poll, and give up on a broker that has confirmed nothing for a while. */
static void poll_deliveries(rd_kafka_t *client, int timeout_ms) {
    uint64_t before = progress.delivered;
    rd_kafka_poll(client, timeout_ms);
    double now = seconds_of(CLOCK_MONOTONIC);
    if (progress.delivered != before) progress.last_at = now;
    else if (now - progress.last_at > STALL_MS / 1e3) fail("nothing was delivered for %d ms", STALL_MS);
}

/* Words of a small vocabulary in random order: compresses about as well as log lines do. */
static char *text_pool(void) {
    static const char *const words[] = {"partition ", "replica ", "offset=", "0193748 ", "leader ", "GET ",
                                        "/api/v1/", "accounts/", "4821 ", "200 ", "ms=17 ", "x9f3c",
                                        "7b21e ", "warn ", "tide ", "\n"};
    size_t capacity = PAYLOAD_POOL_BYTES + (size_t)opt.record_bytes;
    char *pool = malloc(capacity + 64);
    if (!pool) fail("out of memory");
    uint32_t seed = 12345;
    for (size_t used = 0; used < capacity;) {
        seed = seed * 1664525u + 1013904223u;
        used += (size_t)snprintf(pool + used, 64, "%s%x", words[seed >> 28], (seed >> 16) & 0xfff);
    }
    return pool;
}

static void produce(rd_kafka_conf_t *conf) {
    rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    rd_kafka_t *client = client_of(RD_KAFKA_PRODUCER, conf);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, opt.topic, NULL);
    if (!topic) fail_last();
    char *pool = text_pool();
    size_t bytes = (size_t)opt.record_bytes;

    /* One message first: connecting and metadata are not part of the rate. */
    progress.last_at = seconds_of(CLOCK_MONOTONIC);
    if (rd_kafka_produce(topic, 0, 0, pool, bytes, NULL, 0, NULL)) fail_last();
    while (!progress.delivered) poll_deliveries(client, 100);
    progress.delivered = 0;

    double start = seconds_of(CLOCK_MONOTONIC), deadline = start + (double)opt.milliseconds / 1e3;
    int64_t sent = 0;
    size_t at = 0;
    progress.last_at = start;
    while (sent < opt.messages) {
        if (rd_kafka_produce(topic, (int32_t)(sent % opt.partitions), 0, pool + at, bytes, NULL, 0, NULL)) {
            if (rd_kafka_last_error() != RD_KAFKA_ERROR_QUEUE_FULL) fail_last();
            poll_deliveries(client, 10);
            continue;
        }
        at = (at + bytes) % PAYLOAD_POOL_BYTES;
        if (++sent % 1000) continue;
        poll_deliveries(client, 0);
        if (seconds_of(CLOCK_MONOTONIC) > deadline) break;
    }
    while (rd_kafka_outq_len(client) > 0) poll_deliveries(client, 100);
    double seconds = seconds_of(CLOCK_MONOTONIC) - start;
    if (progress.delivered != (uint64_t)sent)
        fail("%" PRIu64 " of %" PRId64 " messages were confirmed", progress.delivered, sent);
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(client);
    free(pool);
    report(seconds, (uint64_t)sent);
}

/* ---- consumer ----------------------------------------------------------------------------- */

static void consume(rd_kafka_conf_t *conf) {
    set(conf, "group.id", "rdperf");
    set(conf, "enable.auto.commit", "false");
    set(conf, "enable.auto.offset.store", "false");
    rd_kafka_t *client = client_of(RD_KAFKA_CONSUMER, conf);
    rd_kafka_poll_set_consumer(client);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)opt.partitions);
    for (int32_t partition = 0; partition < opt.partitions; partition++) {
        rd_kafka_topic_partition_list_add(list, opt.topic, partition);
        rd_kafka_topic_partition_list_set_offset(list, opt.topic, partition, RD_KAFKA_OFFSET_BEGINNING);
    }
    rd_kafka_resp_err_t error = rd_kafka_assign(client, list);
    if (error) fail("assign: %s", rd_kafka_err2str(error));
    rd_kafka_topic_partition_list_destroy(list);
    rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(client);
    static rd_kafka_message_t *messages[CONSUME_BATCH];
    int64_t read = 0, before_start = 0;
    double start = 0, seconds = 0;
    while (read < opt.messages) {
        /* The call returns when it has as many as asked for, so never ask for more than there are. */
        size_t wanted = opt.messages - read < CONSUME_BATCH ? (size_t)(opt.messages - read) : CONSUME_BATCH;
        ssize_t got = rd_kafka_consume_batch_queue(queue, STALL_MS, messages, wanted);
        if (got <= 0)
            fail("%" PRId64 " of %" PRId64 " messages read, then none for %d ms", read, opt.messages, STALL_MS);
        for (ssize_t i = 0; i < got; i++) {
            if (messages[i]->err) fail("consume: %s", rd_kafka_err2str(messages[i]->err));
            if (messages[i]->payload_bytes != (size_t)opt.record_bytes)
                fail("a message of %zu bytes", messages[i]->payload_bytes);
            rd_kafka_message_destroy(messages[i]);
        }
        read += got;
        if (!before_start) before_start = got, start = seconds_of(CLOCK_MONOTONIC);
        seconds = seconds_of(CLOCK_MONOTONIC) - start;
    }
    rd_kafka_queue_destroy(queue);
    rd_kafka_destroy(client);
    if (read == before_start) fail("all messages came in the first answer: too few to time");
    report(seconds, (uint64_t)(read - before_start));
}

/* ---- mock cluster ------------------------------------------------------------------------- */

static void serve_mock(rd_kafka_conf_t *conf) {
    set(conf, "log_level", "4"); /* the hint that no bootstrap server is set is beside the point */
    rd_kafka_t *client = client_of(RD_KAFKA_PRODUCER, conf);
    rd_kafka_mock_cluster_t *cluster = rd_kafka_mock_cluster_new(client, 1);
    if (!cluster) fail("the mock cluster could not be started");
    printf("ready %s\n", rd_kafka_mock_cluster_bootstraps(cluster));
    fflush(stdout);
    char line[512], name[256];
    while (fgets(line, sizeof line, stdin)) {
        int partitions;
        if (sscanf(line, "topic %255s %d", name, &partitions) != 2) fail("not a command: %s", line);
        rd_kafka_resp_err_t error = rd_kafka_mock_topic_create(cluster, name, partitions, 1);
        if (error) printf("error %s\n", rd_kafka_err2str(error));
        else puts("ok");
        fflush(stdout);
    }
    rd_kafka_mock_cluster_destroy(cluster);
    rd_kafka_destroy(client);
}

static bool parse_number(const char *name, const char *text) {
    struct { const char *name; int64_t *value, low; } numbers[] = {
        {"--partitions", &opt.partitions, 1}, {"--record-bytes", &opt.record_bytes, 0},
        {"--messages", &opt.messages, 1}, {"--milliseconds", &opt.milliseconds, 1}};
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++) {
        if (strcmp(name, numbers[n].name)) continue;
        char *end;
        *numbers[n].value = strtoll(text, &end, 10);
        if (*end || *numbers[n].value < numbers[n].low) fail("%s cannot be %s", name, text);
        return true;
    }
    return false;
}

int main(int count, char **arguments) {
    if (count < 2) fail("the first word is produce, consume or mock");
    const char *mode = arguments[1];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    for (int i = 2; i < count; i += 2) {
        if (i + 1 == count) fail("%s needs a value", arguments[i]);
        char *value = arguments[i + 1], *equals = strchr(value, '=');
        if (!strcmp(arguments[i], "--brokers")) opt.brokers = value;
        else if (!strcmp(arguments[i], "--topic")) opt.topic = value;
        else if (!strcmp(arguments[i], "--set")) {
            if (!equals) fail("--set takes name=value, not %s", value);
            *equals = '\0';
            set(conf, value, equals + 1);
        } else if (!parse_number(arguments[i], value)) fail("%s is not an option", arguments[i]);
    }
    if (!strcmp(mode, "mock")) {
        serve_mock(conf);
        return 0;
    }
    if (!opt.brokers || !opt.topic) fail("--brokers and --topic are required");
    set(conf, "bootstrap.servers", opt.brokers);
    if (!strcmp(mode, "produce")) produce(conf);
    else if (!strcmp(mode, "consume")) consume(conf);
    else fail("%s is not a mode: produce, consume or mock", mode);
    return 0;
}
