/* load: sends requests to a RocketMQ broker over the remoting protocol and prints the results as one line of JSON.
 *
 *   load send         messages one by one (SEND_MESSAGE_V2, 310)
 *   load batch        --batch messages to a request (SEND_BATCH_MESSAGE, 320)
 *   load pull         reads queues from their first message to their last, over and over (PULL_MESSAGE, 11)
 *   load delay        single messages with delay level 1 (one second), until every one is in its queue
 *   load transaction  half messages, each committed when it is acknowledged (END_TRANSACTION, 37): 1 message = both requests
 *
 * Closed loop: every connection keeps --depth requests in flight. Open loop (--rate R): R requests a second are due at fixed
 * times, independent of replies, and the latency of a request counts from the time it was due, so a stall affects every request
 * that it delayed. Nothing is dropped: a request without a free slot is sent late.
 *
 * Every message has UNIQ_KEY, WAIT, TAGS and one key in its properties, with unique serial numbers.
 *
 * Accounting: each request is answered exactly once, under its own opaque, or it is counted in `unanswered` or `stray`. The
 * queue offsets of the acknowledged messages of each queue must be dense (`gaps`), and so must those of the records that a
 * pull returns. Rates and CPU time are of the measured interval, which begins after --warm seconds; latencies are of the
 * requests that were due in it.
 *
 * Delivery of delayed and committed messages is checked at the end (GET_MAX_OFFSET, 30): each queue must have grown by the number
 * of acknowledged messages. The measured interval of `delay` is the whole run including this check; its rate excludes the minimum
 * delay of one second of the last message, and its latencies are those of the sends.
 *
 * Exit code: 0 success, 1 messages were rejected, lost or out of order, 2 could not run.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "histogram.h"
#include "measure.h"
#include "requests.h"
#include "text.h"

enum { SLOT_BITS = 12, SLOTS_MAX = 1 << SLOT_BITS, PIDS_MAX = 16, READ_SIZE = 256 << 10 };
enum { FOUND = 0, PULL_NOT_FOUND = 19, PULL_RETRY_IMMEDIATELY = 20, PULL_OFFSET_MOVED = 21 };
static const uint32_t OPAQUE_BASE = 1000000000u;  /* ten digits from here to the largest signed 32-bit number */
static const int64_t DRAIN_NS = 10000000000LL;    /* maximum wait for the last replies, or for another delivery */
static const int64_t DELAY_NS = 1000000000LL;     /* of level 1 */

static const char *host = "127.0.0.1";
static int port = 10911, connections = 16, depth = 1, max_messages = 32, passes;
static int pids[PIDS_MAX], pid_count;
static double seconds = 10, warm_seconds = -1, rate;
static int64_t message_limit;

/* ---- connections -------------------------------------------------------------------------------------------------------- */

typedef struct { int64_t due_ns; uint32_t opaque; bool waiting, committing; int target; } Slot;
typedef struct {
    int fd, in_flight, passes_done, pull_target;
    int64_t pull_offset;
    bool wants_out;
    char *in, *out;
    size_t in_length, in_room, out_start, out_length, out_room;
    Slot *slots;
    uint16_t *free_slots;
    uint32_t generation;
} Connection;

static Connection *conns;
static int slot_count, poll_fd, timer_fd;

/* State of the run: requests sent and answered, in total and in the measured interval. */
static bool measuring, stopping;
static int64_t measure_from = INT64_MAX, measure_until = INT64_MAX;
static int64_t sent_messages, sent_requests, in_flight_total, acknowledged_messages;
static int64_t answered_requests, answered_messages, answered_bytes; /* in the measured interval */
static int64_t failed, stray, gaps;
static int open_connections;
static Histogram latency, lateness;

static void watch(Connection *c, int operation, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = c};
    if (epoll_ctl(poll_fd, operation, c->fd, &event)) fail("epoll_ctl: %s", strerror(errno));
}

static int connect_one(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int yes = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1) fail("--host %s is not an IPv4 address", host);
    if (fd < 0 || connect(fd, (void *)&address, sizeof address)) fail("cannot connect to %s:%d: %s", host, port, strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    return fd;
}

static void connect_all(void) {
    slot_count = rate > 0 ? SLOTS_MAX : mode == PULL ? 1 : depth;
    conns = calloc(connections, sizeof *conns);
    for (int i = 0; i < connections; i++) {
        Connection *c = &conns[i];
        c->fd = connect_one();
        fcntl(c->fd, F_SETFL, O_NONBLOCK);
        watch(c, EPOLL_CTL_ADD, EPOLLIN);
        c->pull_target = i % target_count;
        c->slots = calloc(slot_count, sizeof *c->slots);
        c->free_slots = grow(NULL, slot_count * sizeof *c->free_slots);
        for (int s = 0; s < slot_count; s++) c->free_slots[s] = slot_count - 1 - s;
    }
    open_connections = connections;
}

static void flush(Connection *c) {
    while (c->out_length) {
        ssize_t n = write(c->fd, c->out + c->out_start, c->out_length);
        if (n < 0 && errno == EAGAIN) break;
        if (n < 0) fail("write to the broker: %s", strerror(errno));
        c->out_start += n;
        c->out_length -= n;
    }
    if (!c->out_length) c->out_start = 0;
    bool wants_out = c->out_length > 0;
    if (wants_out != c->wants_out) watch(c, EPOLL_CTL_MOD, wants_out ? EPOLLIN | EPOLLOUT : EPOLLIN);
    c->wants_out = wants_out;
}

static char *out_room(Connection *c, size_t bytes) {
    size_t end = c->out_start + c->out_length;
    if (end + bytes > c->out_room) {
        c->out_room = 2 * (end + bytes);
        c->out = grow(c->out, c->out_room);
    }
    c->out_length += bytes;
    return c->out + end;
}

static uint32_t new_opaque(Connection *c, int slot) {
    return OPAQUE_BASE + ((++c->generation << SLOT_BITS | slot) & ((1u << 30) - 1));
}

static uint32_t take_slot(Connection *c, int64_t due_ns, int target) {
    int slot = c->free_slots[slot_count - ++c->in_flight];
    uint32_t opaque = new_opaque(c, slot);
    c->slots[slot] = (Slot){.due_ns = due_ns, .opaque = opaque, .waiting = true, .target = target};
    in_flight_total++;
    sent_requests++;
    return opaque;
}

static void put_send(Connection *c, int64_t due_ns) {
    int number = sent_requests % target_count;
    Target *target = &targets[number];
    Text *frame = &target->frame;
    put_digits(frame->bytes + target->opaque, take_slot(c, due_ns, number), OPAQUE_DIGITS);
    put_digits(frame->bytes + target->born_time, clock_ns(CLOCK_REALTIME) / 1000000, TIME_DIGITS);
    if (one_by_one()) text_set_serial(frame, target->serial, serial++);
    else for (int i = 0; i < batch; i++) text_set_serial(&body, body_holes[i], serial++);
    char *to = out_room(c, frame->length + body.length);
    memcpy(to, frame->bytes, frame->length);
    memcpy(to + frame->length, body.bytes, body.length);
    sent_messages += mode == BATCH ? batch : 1;
}

/* A request without a body. */
static void put_header(char *to, const char *header, int length) {
    put_u32(to, 4 + length);
    put_u32(to + 4, length);
    memcpy(to + 8, header, length);
}

static void put_pull(Connection *c, int64_t due_ns) {
    char header[1024], name[160];
    const Target *target = &targets[c->pull_target];
    uint32_t opaque = take_slot(c, due_ns, c->pull_target);
    topic_name(name, sizeof name, target->topic_number);
    int n = snprintf(header, sizeof header,
        "{\"code\":11,\"extFields\":{\"consumerGroup\":\"bench-consumer\",\"topic\":\"%s\",\"queueId\":\"%d\","
        "\"queueOffset\":\"%lld\",\"maxMsgNums\":\"%d\",\"sysFlag\":\"4\",\"commitOffset\":\"0\",\"suspendTimeoutMillis\":\"0\","
        "\"subscription\":\"*\",\"subVersion\":\"1\",\"expressionType\":\"TAG\"},\"flag\":0,\"language\":\"JAVA\","
        "\"opaque\":%u,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":475}",
        name, target->queue, (long long)c->pull_offset, max_messages, opaque);
    put_header(out_room(c, 8 + n), header, n);
}

/* Commit of a transaction, in the slot of its half message, whose id ends with its commit-log offset. */
static void put_commit(Connection *c, Slot *slot, int64_t half_offset, const char *id, int id_length) {
    char header[1024], place[17] = {0}, name[160];
    memcpy(place, id + id_length - 16, 16);
    topic_name(name, sizeof name, targets[slot->target].topic_number);
    slot->opaque = new_opaque(c, slot - c->slots);
    slot->committing = true;
    int n = snprintf(header, sizeof header,
        "{\"code\":37,\"extFields\":{\"producerGroup\":\"" PRODUCER_GROUP "\",\"topic\":\"%s\",\"tranStateTableOffset\":\"%lld\","
        "\"commitLogOffset\":\"%lld\",\"commitOrRollback\":\"8\",\"fromTransactionCheck\":\"false\",\"msgId\":\"%.*s\"},"
        "\"flag\":0,\"language\":\"JAVA\",\"opaque\":%u,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":475}",
        name, (long long)half_offset, strtoll(place, NULL, 16), id_length, id, slot->opaque);
    put_header(out_room(c, 8 + n), header, n);
}

static void put_request(Connection *c, int64_t due_ns) {
    if (mode == PULL) put_pull(c, due_ns);
    else put_send(c, due_ns);
    if (message_limit && sent_messages >= message_limit) stopping = true;
}

/* ---- answers ------------------------------------------------------------------------------------------------------------ */

/* Returns the start of the value of "name": in a JSON header, after its quote; NULL if the name is missing. */
static const char *field(const char *header, size_t length, const char *name) {
    const char *at = memmem(header, length, name, strlen(name)), *end = header + length;
    if (!at) return NULL;
    at += strlen(name);
    while (at < end && (*at == ':' || *at == ' ' || *at == '"')) at++;
    return at;
}

/* Returns the number after "name":; -1 if the name is missing. */
static int64_t number_field(const char *header, size_t length, const char *name) {
    const char *at = field(header, length, name), *end = header + length;
    int64_t value = 0;
    if (!at) return -1;
    while (at < end && *at >= '0' && *at <= '9') value = value * 10 + (*at++ - '0');
    return value;
}

static void refused(const char *header, size_t length) {
    if (!failed++) fprintf(stderr, "first refusal: %.*s\n", (int)(length > 600 ? 600 : length), header);
}

static int take_send_answer(const Slot *slot, const char *header, size_t length) {
    Target *target = &targets[slot->target];
    int messages = mode == BATCH ? batch : 1;
    target->acknowledged += messages;
    acknowledged_messages += messages;
    if (by_detour()) return messages;
    int64_t offset = number_field(header, length, "\"queueOffset\"");
    if (offset < 0) gaps++;
    if (offset < target->first_offset) target->first_offset = offset;
    if (offset + messages > target->end_offset) target->end_offset = offset + messages;
    return messages;
}

static void take_half_answer(Connection *c, Slot *slot, const char *header, size_t length) {
    const char *id = field(header, length, "\"msgId\""), *end = id ? memchr(id, '"', header + length - id) : NULL;
    if (!end || end - id < 16 || end - id > 64) fail("the answer to a half message names no msgId: %.*s", (int)length, header);
    put_commit(c, slot, number_field(header, length, "\"queueOffset\""), id, end - id);
}

/* Walks the records of a pull reply; their queue offsets must be consecutive, starting at the requested offset. */
static int take_records(Connection *c, const char *records, size_t length) {
    int messages = 0;
    for (size_t at = 0; at < length; messages++) {
        uint32_t record_size = length - at < 88 ? 0 : get_u32(records + at);
        if (record_size < 88 || record_size > length - at) {
            gaps++;
            break;
        }
        if (get_i64(records + at + 20) != c->pull_offset + messages) gaps++;
        at += record_size;
    }
    return messages;
}

static void next_pass(Connection *c) {
    c->pull_offset = 0;
    if (++c->passes_done == passes) open_connections--;
}

static int take_pull_answer(Connection *c, int64_t code, const char *header, size_t header_length, size_t body_length) {
    int messages = code == FOUND ? take_records(c, header + header_length, body_length) : 0;
    int64_t next = number_field(header, header_length, "\"nextBeginOffset\"");
    acknowledged_messages += messages;
    if (code == FOUND && next != c->pull_offset + messages) gaps++;
    c->pull_offset = next;
    if (code == PULL_NOT_FOUND || next >= number_field(header, header_length, "\"maxOffset\"")) next_pass(c);
    return messages;
}

static void take_frame(Connection *c, const char *frame, size_t length, int64_t now) {
    uint32_t header_length = get_u32(frame + 4) & 0xffffff;
    const char *header = frame + 8;
    if (frame[4] != 0 || header_length + 4 > length) fail("the broker's answer has no JSON header");
    size_t body_length = length - 4 - header_length;
    int64_t code = number_field(header, header_length, "\"code\""), opaque = number_field(header, header_length, "\"opaque\"");
    Slot *slot = &c->slots[(opaque - OPAQUE_BASE) & (SLOTS_MAX - 1)];
    if (opaque < OPAQUE_BASE || slot >= c->slots + slot_count || !slot->waiting || slot->opaque != opaque) {
        stray++;
        return;
    }
    if (mode == TRANSACTION && code == FOUND && !slot->committing) {
        take_half_answer(c, slot, header, header_length);
        return;
    }
    slot->waiting = false;
    c->free_slots[slot_count - c->in_flight--] = slot - c->slots;
    in_flight_total--;
    int messages = 0;
    bool pull_status = mode == PULL && code >= PULL_NOT_FOUND && code <= PULL_OFFSET_MOVED;
    if (code != FOUND && !pull_status) refused(header, header_length);
    else if (mode == PULL) messages = take_pull_answer(c, code, header, header_length, body_length);
    else messages = take_send_answer(slot, header, header_length);
    if (slot->due_ns >= measure_from && slot->due_ns < measure_until) histogram_add(&latency, (now - slot->due_ns) / 1000);
    if (!measuring) return;
    answered_requests++;
    answered_messages += messages;
    answered_bytes += mode == PULL ? (int64_t)body_length : (int64_t)messages * size;
}

static void receive(Connection *c) {
    if (c->in_room - c->in_length < READ_SIZE) {
        c->in_room = 2 * c->in_length + 2 * READ_SIZE;
        c->in = grow(c->in, c->in_room);
    }
    ssize_t n = read(c->fd, c->in + c->in_length, c->in_room - c->in_length);
    if (n < 0 && errno == EAGAIN) return;
    if (n < 0) fail("read from the broker: %s", strerror(errno));
    if (n == 0) fail("the broker closed a connection with %d requests in flight", c->in_flight);
    c->in_length += n;
    size_t at = 0;
    int64_t now = now_ns();
    while (c->in_length - at >= 8 && c->in_length - at >= 4 + (size_t)get_u32(c->in + at)) {
        size_t length = get_u32(c->in + at);
        take_frame(c, c->in + at, length, now);
        at += 4 + length;
    }
    memmove(c->in, c->in + at, c->in_length - at);
    c->in_length -= at;
}

/* ---- the run ------------------------------------------------------------------------------------------------------------ */

static void fill(Connection *c) {
    while (!stopping && c->in_flight < slot_count && !(passes && c->passes_done >= passes)) put_request(c, now_ns());
    flush(c);
}

/* Sends all due requests, rotating over the connections; returns when the next one is due (0: wait for a free slot). */
static int64_t send_due(int64_t from, int64_t *count, int64_t now) {
    static int turn;
    int64_t due = from + (int64_t)(*count * (1e9 / rate));
    while (!stopping && due <= now) {
        if (in_flight_total == (int64_t)connections * slot_count) return 0;
        while (conns[turn].in_flight == slot_count) turn = (turn + 1) % connections;
        if (measuring) histogram_add(&lateness, (now - due) / 1000);
        put_request(&conns[turn], due);
        turn = (turn + 1) % connections;
        due = from + (int64_t)(++*count * (1e9 / rate));
    }
    for (int i = 0; i < connections; i++)
        if (conns[i].out_length && !conns[i].wants_out) flush(&conns[i]);
    return due;
}

static void wait_and_receive(int64_t until_ns) {
    struct itimerspec alarm = {.it_value = {until_ns / 1000000000, until_ns % 1000000000}};
    struct epoll_event events[256];
    timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &alarm, NULL);
    int n = epoll_wait(poll_fd, events, 256, -1);
    if (n < 0 && errno != EINTR) fail("epoll_wait: %s", strerror(errno));
    for (int i = 0; i < n; i++) {
        Connection *c = events[i].data.ptr;
        if (!c) continue; /* the timer */
        if (events[i].events & EPOLLOUT) flush(c);
        if (events[i].events & ~EPOLLOUT) receive(c);
        if (rate == 0) fill(c);
    }
}

/* ---- what became of messages that the broker stores elsewhere first --------------------------------------------------- */

/* Requests the end offset of a queue over a separate blocking connection. */
static int64_t max_offset(const Target *target) {
    static int fd = -1;
    static char answer[65536];
    char header[512], frame[520], name[160];
    size_t have = 0;
    if (fd < 0) fd = connect_one();
    topic_name(name, sizeof name, target->topic_number);
    int n = snprintf(header, sizeof header,
        "{\"code\":30,\"extFields\":{\"topic\":\"%s\",\"queueId\":\"%d\"},\"flag\":0,\"language\":\"JAVA\",\"opaque\":1,"
        "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":475}", name, target->queue);
    put_header(frame, header, n);
    if (write(fd, frame, 8 + n) != 8 + n) fail("write to the broker: %s", strerror(errno));
    while (have < 8 || have < 4 + (size_t)get_u32(answer)) {
        ssize_t got = read(fd, answer + have, sizeof answer - have);
        if (got <= 0) fail("the broker did not say how many messages %s/%d has", name, target->queue);
        have += got;
    }
    int64_t offset = number_field(answer + 8, have - 8, "\"offset\"");
    if (number_field(answer + 8, have - 8, "\"code\"") != FOUND || offset < 0)
        fail("the broker did not say how many messages %s/%d has: %.*s", name, target->queue, (int)have - 8, answer + 8);
    return offset;
}

static void count_before(void) {
    for (int i = 0; i < target_count; i++) targets[i].before = max_offset(&targets[i]);
}

/* Waits until all acknowledged messages are delivered; a queue with too many, or without progress for DRAIN_NS, has a gap. */
static void await_deliveries(void) {
    const struct timespec pause = {.tv_nsec = 10000000};
    for (int i = 0; i < target_count; i++) {
        const Target *target = &targets[i];
        int64_t come = -1, deadline = 0;
        for (;;) {
            int64_t now = now_ns(), now_come = max_offset(target) - target->before;
            if (now_come > come) deadline = now + DRAIN_NS;
            come = now_come;
            if (come >= target->acknowledged || now > deadline) break;
            nanosleep(&pause, NULL);
        }
        if (come != target->acknowledged) gaps++;
    }
}

typedef struct { double seconds, cpu_seconds, own_cpu_seconds; } Used;

static Used used_until(int64_t now) { return (Used){now / 1e9, cpu_seconds(pids, pid_count), own_cpu_seconds()}; }

static Used run(void) {
    int64_t began = now_ns(), requests_due = 0, measured_until = 0;
    Used start = {0}, end = {0};
    measure_from = began + (int64_t)(warm_seconds * 1e9);
    measure_until = seconds > 0 ? measure_from + (int64_t)(seconds * 1e9) : INT64_MAX;
    for (;;) {
        int64_t now = now_ns();
        if (!measuring && !measured_until && now >= measure_from) {
            measuring = true;
            start = used_until(now);
        }
        bool all_done = passes ? open_connections == 0 : stopping && in_flight_total == 0;
        if (measuring && (now >= measure_until || all_done)) {
            measuring = false;
            stopping = true;
            measured_until = now;
            end = used_until(now);
        }
        if (measured_until && (in_flight_total == 0 || now > measured_until + DRAIN_NS)) break;
        int64_t wake = measured_until ? measured_until + DRAIN_NS + 1000 : measuring ? measure_until : measure_from;
        if (rate > 0) {
            int64_t due = send_due(began, &requests_due, now);
            if (due && due < wake && !stopping) wake = due;
        } else if (sent_requests == 0) {
            for (int i = 0; i < connections; i++) fill(&conns[i]);
        }
        wait_and_receive(wake);
    }
    if (by_detour()) await_deliveries();
    if (mode == DELAY) {
        end = used_until(now_ns());
        end.seconds -= DELAY_NS / 1e9;
        answered_requests = answered_messages = acknowledged_messages;
        answered_bytes = answered_messages * size;
    }
    return (Used){end.seconds - start.seconds, end.cpu_seconds - start.cpu_seconds, end.own_cpu_seconds - start.own_cpu_seconds};
}

static void count_gaps(void) {
    for (int i = 0; i < target_count; i++) {
        const Target *t = &targets[i];
        if (!by_detour() && t->acknowledged && t->end_offset - t->first_offset != t->acknowledged) gaps++;
    }
}

static void report(Used used) {
    double per_second = 1 / used.seconds;
    printf("{\"mode\":\"%s\",\"seconds\":%.3f,", MODE_NAMES[mode], used.seconds);
    printf("\"msgs_per_s\":%.1f,\"requests_per_s\":%.1f,", answered_messages * per_second, answered_requests * per_second);
    printf("\"mb_per_s\":%.2f,", answered_bytes * per_second / 1e6);
    printf("\"msgs\":%lld,\"acknowledged\":%lld,", (long long)answered_messages, (long long)acknowledged_messages);
    printf("\"failed\":%lld,\"unanswered\":%lld,", (long long)failed, (long long)in_flight_total);
    printf("\"stray\":%lld,\"gaps\":%lld,", (long long)stray, (long long)gaps);
    printf("\"p50_ms\":%.4f,\"p99_ms\":%.4f,", histogram_ms(&latency, .5), histogram_ms(&latency, .99));
    printf("\"p999_ms\":%.4f,\"max_ms\":%.4f,", histogram_ms(&latency, .999), latency.max / 1000.0);
    if (rate > 0) printf("\"late_p99_ms\":%.4f,", histogram_ms(&lateness, .99));
    if (pid_count && answered_messages) printf("\"cpu_us_per_msg\":%.3f,", used.cpu_seconds * 1e6 / answered_messages);
    if (pid_count) printf("\"cpu_cores\":%.3f,", used.cpu_seconds * per_second);
    printf("\"load_cores\":%.3f}\n", used.own_cpu_seconds * per_second);
}

static double number_option(const char *name, const char *text) {
    char *end;
    double value = strtod(text, &end);
    if (*end || end == text || value < 0) fail("%s %s: a number of 0 or more is expected", name, text);
    return value;
}

static void read_options(int count, char **words) {
    static const struct { const char *name; int *to; int low, high; } INTEGERS[] = {
        {"--port", &port, 1, 65535},     {"--conns", &connections, 1, 4096}, {"--depth", &depth, 1, SLOTS_MAX},
        {"--size", &size, 1, 4 << 20},   {"--batch", &batch, 1, 4096},       {"--topics", &topics, 1, 99999},
        {"--queues", &queues, 1, 4096},  {"--max", &max_messages, 1, 4096},  {"--passes", &passes, 0, 1 << 30},
    };
    if (count < 2) fail("usage: load send|batch|pull|delay|transaction [--option value]...  (see the head of load.c)");
    while (mode < MODES && strcmp(words[1], MODE_NAMES[mode])) mode++;
    if (mode == MODES) fail("%s is not one of send, batch, pull, delay, transaction", words[1]);
    for (int i = 2; i < count; i += 2) {
        const char *name = words[i], *value = i + 1 < count ? words[i + 1] : NULL;
        bool known = false;
        if (!value) fail("%s needs a value", name);
        for (size_t k = 0; k < sizeof INTEGERS / sizeof *INTEGERS; k++) {
            if (strcmp(name, INTEGERS[k].name)) continue;
            double number = number_option(name, value);
            if (number < INTEGERS[k].low || number > INTEGERS[k].high)
                fail("%s %s: expected %d to %d", name, value, INTEGERS[k].low, INTEGERS[k].high);
            *INTEGERS[k].to = (int)number;
            known = true;
        }
        if (known) continue;
        if (!strcmp(name, "--host")) host = value;
        else if (!strcmp(name, "--topic")) topic = value;
        else if (!strcmp(name, "--seconds")) seconds = number_option(name, value);
        else if (!strcmp(name, "--warm")) warm_seconds = number_option(name, value);
        else if (!strcmp(name, "--rate")) rate = number_option(name, value);
        else if (!strcmp(name, "--messages")) message_limit = (int64_t)number_option(name, value);
        else if (!strcmp(name, "--pid") && pid_count < PIDS_MAX) pids[pid_count++] = (int)number_option(name, value);
        else fail("unknown option %s", name);
    }
    if (mode != SEND && mode != BATCH && rate > 0) fail("--rate is for send and batch");
    if (mode == DELAY && warm_seconds > 0) fail("--warm is not for delay, which measures the whole run");
    if (warm_seconds < 0) warm_seconds = mode == DELAY ? 0 : 1;
    if (mode == PULL && passes && connections % (topics * queues))
        fail("--passes needs --conns to be a multiple of the %d queues", topics * queues);
    if (seconds <= 0 && !message_limit && !passes) fail("--seconds 0 needs --messages or --passes, or the run would not end");
}

int main(int count, char **words) {
    read_options(count, words);
    prctl(PR_SET_TIMERSLACK, 1UL);
    poll_fd = epoll_create1(0);
    timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct epoll_event timer_event = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(poll_fd, EPOLL_CTL_ADD, timer_fd, &timer_event);
    make_requests();
    if (by_detour()) count_before();
    connect_all();
    Used used = run();
    count_gaps();
    report(used);
    return failed || in_flight_total || stray || gaps ? 1 : 0;
}
