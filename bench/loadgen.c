/*
 * A load generator that costs less than the broker it measures: one thread, one epoll set.
 *
 *   loadgen produce --port P --topic T [options]     Produce v9, closed loop or fixed rate
 *   loadgen fetch   --port P --topic T [options]     Fetch v11, one request in flight each
 *
 * It knows the wire form of exactly two requests and their answers; it does not discover brokers
 * (the one at host:port must lead every partition) and creates no topic. A produce request is
 * encoded once per partition; per request only its 12-byte head differs, so that heads live in the
 * connection and bodies are shared. Every answer is checked (error code, order, offsets): anything
 * unexpected ends the run with exit status 1 and a sentence, never with a flattering number.
 *
 * Fixed rate: each request has an intended time. Latency counts from the intended time, so that a
 * stalled broker pays for the requests it kept from being sent; `service_*` counts from the send.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "batch.h"
#include "histogram.h"
#include "wire.h"

enum { HEAD_BYTES = 12, IOVECS_MAX = 128, FRAME_MAX = 128 << 20 };
enum { STALL_SECONDS = 15, CONNECTIONS_MAX = 10000 };
static const uint64_t SECOND = 1000000000ull;

static struct {
    bool produce;
    const char *host, *topic;
    int64_t port, partitions, connections, inflight, batch_bytes, record_bytes, records_per_batch;
    int64_t rate, milliseconds, warmup_ms, max_bytes, max_requests, acks, fetch_bytes, once;
} opt = {.host = "127.0.0.1", .partitions = 1, .connections = 1, .inflight = 1, .record_bytes = 1024,
         .batch_bytes = 65536, .milliseconds = 2000, .max_bytes = 1 << 30, .acks = 1, .fetch_bytes = 1 << 20};

struct totals { uint64_t requests, records, bytes; };
struct request { uint64_t intended_ns, sent_ns; };
struct connection {
    int fd;
    int32_t partition;
    bool wants_out, finished;
    uint8_t *body;                        /* everything after the head; shared by produce requests */
    size_t body_bytes;
    struct totals per_request;            /* what one produce request carries */
    uint8_t *heads;                       /* opt.inflight slots of HEAD_BYTES */
    struct request *requests;             /* opt.inflight slots */
    uint64_t queued, written, answered;   /* request counters: answered <= written <= queued */
    size_t written_bytes;                 /* of the request number `written` */
    uint64_t due_ns;                      /* fixed rate: intended time of the next request */
    int64_t offset;                       /* produce: last base offset; fetch: next offset */
    uint8_t *input;
    size_t input_used, input_capacity;
};

static struct connection *connections;
static struct totals total, window;
static uint64_t histogram[HISTOGRAM_BUCKETS], service_histogram[HISTOGRAM_BUCKETS], latency_max_ns;
static uint64_t window_start_ns, window_end_ns, last_answer_ns;
static uint8_t *fetch_offset_of(struct connection *c);

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

static void *allocate(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (!memory) fail("out of memory");
    return memory;
}

/* ---- requests ----------------------------------------------------------------------------- */

static void encode_produce(struct connection *c) {
    int32_t count = opt.records_per_batch ? (int32_t)opt.records_per_batch
                                          : records_that_fit(opt.batch_bytes, opt.record_bytes);
    size_t capacity = BATCH_HEADER_BYTES + (size_t)count * (record_body_bytes(opt.record_bytes, count) + 5);
    uint8_t *records = allocate(1, capacity);
    struct writer batch = {records, records};
    put_batch(&batch, count, opt.record_bytes);
    size_t batch_bytes = (size_t)(batch.at - records);
    c->body = allocate(1, batch_bytes + strlen(opt.topic) + 64);
    struct writer w = {c->body, c->body};
    put_string(&w, "loadgen");
    put_uvarint(&w, 0); /* header tags */
    put_uvarint(&w, 0); /* no transactional id */
    put_i16(&w, (int16_t)opt.acks);
    put_i32(&w, 30000);
    put_uvarint(&w, 2);
    put_uvarint(&w, strlen(opt.topic) + 1);
    put(&w, opt.topic, strlen(opt.topic));
    put_uvarint(&w, 2);
    put_i32(&w, c->partition);
    put_uvarint(&w, batch_bytes + 1);
    put(&w, records, batch_bytes);
    put(&w, "\0\0\0", 3); /* tags of the partition, the topic, the request */
    c->body_bytes = (size_t)(w.at - w.start);
    c->per_request = (struct totals){1, (uint64_t)count, batch_bytes};
    free(records);
}

static void encode_fetch(struct connection *c) {
    c->body = allocate(1, strlen(opt.topic) + 128);
    struct writer w = {c->body, c->body};
    put_string(&w, "loadgen");
    put_i32(&w, -1);  /* a consumer, not a replica */
    put_i32(&w, 500); /* max wait */
    put_i32(&w, 1);   /* min bytes */
    put_i32(&w, (int32_t)opt.fetch_bytes);
    put_i8(&w, 0);
    put_i32(&w, 0);
    put_i32(&w, -1); /* no fetch session */
    put_i32(&w, 1);
    put_string(&w, opt.topic);
    put_i32(&w, 1);
    put_i32(&w, c->partition);
    put_i32(&w, -1);
    put_i64(&w, 0);  /* fetch offset: patched per request, see fetch_offset_of */
    put_i64(&w, -1);
    put_i32(&w, (int32_t)opt.fetch_bytes);
    put_i32(&w, 0);
    put_string(&w, "");
    c->body_bytes = (size_t)(w.at - w.start);
}

static uint8_t *fetch_offset_of(struct connection *c) { return c->body + c->body_bytes - 2 - 4 - 4 - 8 - 8; }

/* ---- answers ------------------------------------------------------------------------------ */

static void expect_topic(struct reader *r, size_t length) {
    if (length != strlen(opt.topic) || memcmp(take(r, length), opt.topic, length))
        fail("the answer is about another topic");
}

static struct totals read_produce_answer(struct connection *c, struct reader *r) {
    expect((int64_t)get_uvarint(r), 0, "number of header tags");
    expect((int64_t)get_uvarint(r), 2, "topic count + 1");
    expect_topic(r, get_uvarint(r) - 1);
    expect((int64_t)get_uvarint(r), 2, "partition count + 1");
    expect(get_i32(r), c->partition, "partition");
    expect(get_i16(r), 0, "error code of the produce answer");
    int64_t base_offset = get_i64(r);
    if (base_offset <= c->offset) fail("base offset %" PRId64 " after %" PRId64, base_offset, c->offset);
    c->offset = base_offset;
    return c->per_request;
}

/* Walks the whole batches of a fetch answer and moves c->offset past them. */
static struct totals read_batches(struct connection *c, struct reader *r) {
    struct totals got = {.requests = 1};
    int64_t expected = -1;
    while (r->end - r->at >= BATCH_HEADER_BYTES) {
        struct reader batch = *r;
        int64_t base = get_i64(&batch);
        int32_t length = get_i32(&batch);
        if (length < BATCH_HEADER_BYTES - 12) fail("a batch says it is %" PRId32 " bytes long", length);
        if (r->end - r->at < 12 + (ptrdiff_t)length) break; /* Kafka may cut the last batch */
        take(&batch, 11); /* epoch, magic, crc, attributes */
        int64_t next = base + get_i32(&batch) + 1;
        take(&batch, 8 + 8 + 8 + 2 + 4);
        got.records += (uint64_t)get_i32(&batch);
        if (expected < 0 ? base > c->offset || next <= c->offset : base != expected)
            fail("batch at %" PRId64 " where %" PRId64 " was due", base, expected < 0 ? c->offset : expected);
        expected = next;
        got.bytes += 12 + (uint64_t)length;
        take(r, 12 + (size_t)length);
    }
    if (expected < 0) fail("the records of a fetch answer hold no whole batch");
    c->offset = expected;
    return got;
}

static struct totals read_fetch_answer(struct connection *c, struct reader *r) {
    get_i32(r); /* throttle time */
    expect(get_i16(r), 0, "error code of the fetch answer");
    get_i32(r);
    expect(get_i32(r), 1, "topic count");
    expect_topic(r, (size_t)get_i16(r));
    expect(get_i32(r), 1, "partition count");
    expect(get_i32(r), c->partition, "partition");
    expect(get_i16(r), 0, "error code of the partition");
    struct totals got = {0};
    int64_t high_watermark = get_i64(r);
    get_i64(r);
    int64_t log_start = get_i64(r);
    int32_t aborted = get_i32(r);
    if (aborted > 0) take(r, (size_t)aborted * 16);
    get_i32(r);
    int32_t records_bytes = get_i32(r);
    if (records_bytes > 0) {
        expect(r->end - r->at, records_bytes, "length of the records");
        got = read_batches(c, r);
    } else if (high_watermark <= log_start) fail("partition %" PRId32 " is empty", c->partition);
    else if (c->offset < high_watermark) fail("no records below the high watermark %" PRId64, high_watermark);
    if (c->offset >= high_watermark) { /* at the end: start over, without the wait of an empty fetch */
        c->finished = opt.once;
        c->offset = log_start;
    }
    return got;
}

/* ---- measuring ---------------------------------------------------------------------------- */

static void count_answer(struct connection *c, struct totals got, uint64_t now) {
    struct request *request = &c->requests[c->answered % (uint64_t)opt.inflight];
    last_answer_ns = now;
    total.requests += got.requests, total.records += got.records, total.bytes += got.bytes;
    if (now < window_start_ns || now > window_end_ns) return;
    window.requests += got.requests, window.records += got.records, window.bytes += got.bytes;
    if (!got.requests) return;
    uint64_t latency = now - request->intended_ns;
    histogram[bucket_of(latency)]++;
    service_histogram[bucket_of(now - request->sent_ns)]++;
    if (latency > latency_max_ns) latency_max_ns = latency;
}

/* ---- connections -------------------------------------------------------------------------- */

static int epoll_fd;

static void watch(struct connection *c, int operation) {
    struct epoll_event event = {.events = EPOLLIN | (c->wants_out ? EPOLLOUT : 0), .data.ptr = c};
    if (epoll_ctl(epoll_fd, operation, c->fd, &event)) fail("epoll_ctl: %s", strerror(errno));
}

static void connect_to_broker(struct connection *c) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)opt.port)};
    int on = 1;
    if (inet_pton(AF_INET, opt.host, &address.sin_addr) != 1) fail("%s is not an IPv4 address", opt.host);
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&address, sizeof address))
        fail("connect to %s:%" PRId64 ": %s", opt.host, opt.port, strerror(errno));
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    watch(c, EPOLL_CTL_ADD);
}

static void queue_requests(struct connection *c, uint64_t now, bool issuing) {
    while (issuing && !c->finished && c->queued - c->answered < (uint64_t)opt.inflight) {
        if (opt.rate && c->due_ns > now) return;
        size_t slot = c->queued % (uint64_t)opt.inflight;
        struct writer head = {c->heads + slot * HEAD_BYTES, c->heads + slot * HEAD_BYTES};
        put_i32(&head, (int32_t)(HEAD_BYTES - 4 + c->body_bytes));
        put_i16(&head, opt.produce ? 0 : 1);
        put_i16(&head, opt.produce ? 9 : 11);
        put_i32(&head, (int32_t)(c->queued & 0x7fffffff));
        if (!opt.produce) {
            struct writer at = {.at = fetch_offset_of(c)};
            put_i64(&at, c->offset);
        }
        c->requests[slot] = (struct request){opt.rate ? c->due_ns : now, now};
        c->due_ns += opt.rate ? SECOND * (uint64_t)opt.connections / (uint64_t)opt.rate : 0;
        c->queued++;
    }
}

static void write_requests(struct connection *c) {
    while (c->written < c->queued) {
        struct iovec vectors[IOVECS_MAX];
        int used = 0;
        for (uint64_t n = c->written; n < c->queued && used + 2 <= IOVECS_MAX; n++) {
            size_t skip = n == c->written ? c->written_bytes : 0;
            size_t head_skip = skip < HEAD_BYTES ? skip : HEAD_BYTES;
            uint8_t *head = c->heads + n % (uint64_t)opt.inflight * HEAD_BYTES;
            vectors[used++] = (struct iovec){head + head_skip, HEAD_BYTES - head_skip};
            size_t body_skip = skip - head_skip;
            vectors[used++] = (struct iovec){c->body + body_skip, c->body_bytes - body_skip};
        }
        struct msghdr message = {.msg_iov = vectors, .msg_iovlen = (size_t)used};
        ssize_t sent = sendmsg(c->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && errno != EAGAIN) fail("write: %s", strerror(errno));
        size_t progress = c->written_bytes + (sent > 0 ? (size_t)sent : 0);
        size_t whole = HEAD_BYTES + c->body_bytes;
        c->written += progress / whole;
        c->written_bytes = progress % whole;
        if (sent < 0) break;
    }
    bool wants_out = c->written < c->queued;
    if (wants_out == c->wants_out) return;
    c->wants_out = wants_out;
    watch(c, EPOLL_CTL_MOD);
}

static void send_requests(struct connection *c, uint64_t now, bool issuing) {
    queue_requests(c, now, issuing);
    write_requests(c);
}

static void read_answers(struct connection *c) {
    ssize_t got = recv(c->fd, c->input + c->input_used, c->input_capacity - c->input_used, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) fail("the broker closed the connection: %s", got ? strerror(errno) : "end of stream");
    c->input_used += (size_t)got;
    uint64_t now = now_ns();
    size_t at = 0;
    while (c->input_used - at >= 4) {
        struct reader r = {c->input + at, c->input + c->input_used};
        int32_t size = get_i32(&r);
        if (size < 4 || size > FRAME_MAX) fail("an answer says it is %" PRId32 " bytes long", size);
        if ((size_t)(r.end - r.at) < (size_t)size) {
            if (4 + (size_t)size > c->input_capacity) {
                c->input_capacity = 4 + (size_t)size;
                c->input = realloc(c->input, c->input_capacity);
                if (!c->input) fail("out of memory");
            }
            break;
        }
        r.end = r.at + size;
        if (c->answered >= c->queued) fail("an answer that was not asked for");
        expect(get_i32(&r), (int64_t)(c->answered & 0x7fffffff), "correlation id");
        struct totals answer = opt.produce ? read_produce_answer(c, &r) : read_fetch_answer(c, &r);
        count_answer(c, answer, now);
        c->answered++;
        at += 4 + (size_t)size;
    }
    memmove(c->input, c->input + at, c->input_used - at);
    c->input_used -= at;
}

static void open_connections(void) {
    connections = allocate((size_t)opt.connections, sizeof *connections);
    for (int64_t i = 0; i < opt.connections; i++) {
        struct connection *c = &connections[i];
        c->partition = (int32_t)(i % opt.partitions);
        c->heads = allocate((size_t)opt.inflight, HEAD_BYTES);
        c->requests = allocate((size_t)opt.inflight, sizeof *c->requests);
        c->input_capacity = 65536;
        c->input = allocate(1, c->input_capacity);
        c->offset = opt.produce ? -1 : 0;
        if (opt.produce && i >= opt.partitions) {
            c->body = connections[c->partition].body;
            c->body_bytes = connections[c->partition].body_bytes;
            c->per_request = connections[c->partition].per_request;
        } else if (opt.produce) encode_produce(c);
        else encode_fetch(c);
        connect_to_broker(c);
    }
}

/* ---- the run ------------------------------------------------------------------------------ */

static bool still_issuing(uint64_t now) {
    if (now >= window_end_ns) return false;
    if (opt.max_bytes && window.bytes >= (uint64_t)opt.max_bytes) return false;
    if (opt.max_requests && total.requests >= (uint64_t)opt.max_requests) return false;
    for (int64_t i = 0; i < opt.connections; i++) if (!connections[i].finished) return true;
    return false;
}

static bool anything_in_flight(void) {
    for (int64_t i = 0; i < opt.connections; i++)
        if (connections[i].answered < connections[i].queued) return true;
    return false;
}

static void arm_timer(int timer_fd) {
    uint64_t due = UINT64_MAX;
    for (int64_t i = 0; i < opt.connections; i++) {
        struct connection *c = &connections[i];
        if (c->queued - c->answered < (uint64_t)opt.inflight && c->due_ns < due) due = c->due_ns;
    }
    if (due == UINT64_MAX) return; /* every connection is full: an answer will wake us */
    struct itimerspec when = {.it_value = {(time_t)(due / SECOND), (long)(due % SECOND)}};
    if (timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &when, NULL)) fail("timerfd: %s", strerror(errno));
}

static void run(void) {
    struct epoll_event events[256];
    int timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    struct epoll_event timer_event = {.events = EPOLLIN, .data.ptr = NULL};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, timer_fd, &timer_event)) fail("epoll_ctl: %s", strerror(errno));
    prctl(PR_SET_TIMERSLACK, 1); /* the default of 50 us would be part of every latency */
    uint64_t start = now_ns();
    last_answer_ns = start;
    window_start_ns = start + (uint64_t)opt.warmup_ms * 1000000;
    window_end_ns = window_start_ns + (uint64_t)opt.milliseconds * 1000000;
    for (int64_t i = 0; i < opt.connections; i++)
        connections[i].due_ns = opt.rate ? start + SECOND / (uint64_t)opt.rate * (uint64_t)i : 0;
    bool issuing = true;
    for (int64_t i = 0; i < opt.connections; i++) send_requests(&connections[i], start, true);
    while (issuing || anything_in_flight()) {
        if (opt.rate && issuing) arm_timer(timer_fd);
        int ready = epoll_wait(epoll_fd, events, 256, 100);
        if (ready < 0 && errno != EINTR) fail("epoll_wait: %s", strerror(errno));
        bool timer = false;
        for (int i = 0; i < ready; i++) {
            struct connection *c = events[i].data.ptr;
            uint64_t expirations;
            if (!c) timer = read(timer_fd, &expirations, sizeof expirations) > 0;
            else if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) read_answers(c);
        }
        uint64_t now = now_ns();
        if (issuing && !still_issuing(now)) {
            issuing = false;
            if (now < window_end_ns) window_end_ns = now;
        }
        for (int i = 0; i < ready; i++) {
            struct connection *c = events[i].data.ptr;
            if (c) send_requests(c, now, issuing);
        }
        for (int64_t i = 0; timer && i < opt.connections; i++)
            send_requests(&connections[i], now, issuing);
        if (now > last_answer_ns + STALL_SECONDS * SECOND) fail("no answer for %d seconds", STALL_SECONDS);
    }
}

static void report(void) {
    double seconds = (double)(window_end_ns - window_start_ns) / 1e9;
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    double cpu = (double)used.tv_sec + (double)used.tv_nsec / 1e9;
    if (!window.requests || seconds <= 0) fail("nothing was measured: the run ended within its warm-up");
    printf("{\"seconds\": %.6f, \"requests\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"records\": %" PRIu64
           ", \"total_requests\": %" PRIu64 ", \"total_bytes\": %" PRIu64 ", \"client_cpu_seconds\": %.4f"
           ", \"requests_per_second\": %.3f, \"bytes_per_second\": %.1f"
           ", \"p50_us\": %.2f, \"p99_us\": %.2f, \"p999_us\": %.2f, \"max_us\": %.2f"
           ", \"service_p50_us\": %.2f, \"service_p99_us\": %.2f, \"service_p999_us\": %.2f}\n",
           seconds, window.requests, window.bytes, window.records, total.requests, total.bytes, cpu,
           (double)window.requests / seconds, (double)window.bytes / seconds,
           percentile_us(histogram, 0.50), percentile_us(histogram, 0.99), percentile_us(histogram, 0.999),
           (double)latency_max_ns / 1e3, percentile_us(service_histogram, 0.50),
           percentile_us(service_histogram, 0.99), percentile_us(service_histogram, 0.999));
}

static void parse(int count, char **arguments) {
    struct { const char *name; int64_t *value, low, high; } numbers[] = {
        {"--port", &opt.port, 1, 65535}, {"--partitions", &opt.partitions, 1, 10000},
        {"--connections", &opt.connections, 1, CONNECTIONS_MAX}, {"--inflight", &opt.inflight, 1, 1000},
        {"--batch-bytes", &opt.batch_bytes, 1, FRAME_MAX}, {"--record-bytes", &opt.record_bytes, 0, 1 << 24},
        {"--records-per-batch", &opt.records_per_batch, 1, 1 << 20}, {"--rate", &opt.rate, 1, 10000000},
        {"--milliseconds", &opt.milliseconds, 1, 3600000}, {"--warmup-ms", &opt.warmup_ms, 0, 600000},
        {"--max-bytes", &opt.max_bytes, 1, INT64_MAX}, {"--max-requests", &opt.max_requests, 1, INT64_MAX},
        {"--acks", &opt.acks, -1, 1}, {"--fetch-bytes", &opt.fetch_bytes, 1, FRAME_MAX / 2},
        {"--once", &opt.once, 0, 1}};
    if (count < 2 || (strcmp(arguments[1], "produce") && strcmp(arguments[1], "fetch")))
        fail("the first word is produce or fetch");
    opt.produce = !strcmp(arguments[1], "produce");
    for (int i = 2; i < count; i += 2) {
        if (i + 1 == count) fail("%s needs a value", arguments[i]);
        bool known = true;
        if (!strcmp(arguments[i], "--host")) opt.host = arguments[i + 1];
        else if (!strcmp(arguments[i], "--topic")) opt.topic = arguments[i + 1];
        else known = false;
        for (size_t n = 0; !known && n < sizeof numbers / sizeof *numbers; n++) {
            if (strcmp(arguments[i], numbers[n].name)) continue;
            char *end;
            *numbers[n].value = strtoll(arguments[i + 1], &end, 10);
            if (*end || *numbers[n].value < numbers[n].low || *numbers[n].value > numbers[n].high)
                fail("%s is %s; allowed: %" PRId64 " to %" PRId64, arguments[i], arguments[i + 1],
                     numbers[n].low, numbers[n].high);
            known = true;
        }
        if (!known) fail("%s is not an option", arguments[i]);
    }
    if (!opt.port || !opt.topic || !*opt.topic) fail("--port and --topic are required");
    if (!opt.acks) fail("acks 0 has no answer to measure");
    if (!opt.produce && opt.inflight != 1) fail("a fetch needs the answer before it: --inflight is 1");
    if (opt.partitions > opt.connections) opt.partitions = opt.connections;
}

int main(int count, char **arguments) {
    parse(count, arguments);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_fd < 0) fail("epoll_create1: %s", strerror(errno));
    open_connections();
    run();
    report();
    return 0;
}
