/* Requests: texts built once, with placeholders for the numbers that change. */
#ifndef REQUESTS_H
#define REQUESTS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "measure.h"
#include "text.h"

enum { SEND, BATCH, PULL, DELAY, TRANSACTION, MODES };
static const char *const MODE_NAMES[MODES] = {"send", "batch", "pull", "delay", "transaction"};
enum { OPAQUE_DIGITS = 10, SERIAL_DIGITS = 12, TIME_DIGITS = 13 };
#define PRODUCER_GROUP "bench-producer"

/* Set by the options. */
static int mode, size = 128, batch = 32, topics = 1, queues = 4;
static const char *topic = "bench";

typedef struct { int unique_key, key; } SerialHoles;
typedef struct {
    Text frame; /* length fields and header; the body follows */
    int opaque, born_time;
    SerialHoles serial;
    int topic_number, queue;
    int64_t acknowledged, first_offset, end_offset; /* of the messages sent by this run */
    int64_t before;                                 /* messages in the queue at the start (delay, transaction) */
} Target; /* one queue of one topic */

static Target *targets;
static int target_count;
static Text body;               /* equal for all requests except the serial numbers in a batch */
static SerialHoles *body_holes; /* one for each message of a batch */
static uint64_t serial;
static char run_mark[21]; /* makes the keys of this run unique */

static bool one_by_one(void) { return mode != BATCH && mode != PULL; }

/* Returns whether the broker stores messages elsewhere first and moves them to their queue itself. */
static bool by_detour(void) { return mode == DELAY || mode == TRANSACTION; }

static SerialHoles text_add_properties(Text *t, const char *name_end, const char *value_end) {
    SerialHoles holes;
    text_add(t, "UNIQ_KEY%s%s", name_end, run_mark);
    holes.unique_key = text_hole(t, SERIAL_DIGITS);
    text_add(t, "%sWAIT%strue%sTAGS%sTagA%s", value_end, name_end, value_end, name_end, value_end);
    text_add(t, "KEYS%skey-%.8s", name_end, run_mark + 12);
    holes.key = text_hole(t, SERIAL_DIGITS);
    text_add(t, "%s", value_end);
    if (mode == DELAY) text_add(t, "DELAY%s1%s", name_end, value_end);
    if (mode == TRANSACTION)
        text_add(t, "TRAN_MSG%strue%sPGROUP%s" PRODUCER_GROUP "%s", name_end, value_end, name_end, value_end);
    return holes;
}

static void text_set_serial(Text *t, SerialHoles holes, uint64_t value) {
    put_digits(t->bytes + holes.unique_key, value, SERIAL_DIGITS);
    put_digits(t->bytes + holes.key, value, SERIAL_DIGITS);
}

static void topic_name(char *to, size_t room, int number) {
    if (topics == 1) snprintf(to, room, "%s", topic);
    else snprintf(to, room, "%s-%05d", topic, number);
}

static Target make_target(int topic_number, int queue) {
    Target t = {.topic_number = topic_number, .queue = queue, .first_offset = INT64_MAX, .end_offset = 0};
    char name[160];
    topic_name(name, sizeof name, topic_number);
    text_add(&t.frame, "%8s", ""); /* the two length fields */
    text_add(&t.frame, "{\"code\":%d,\"extFields\":{\"a\":\"" PRODUCER_GROUP "\",", mode == BATCH ? 320 : 310);
    text_add(&t.frame, "\"b\":\"%s\",\"c\":\"TBW102\",", name);
    text_add(&t.frame, "\"d\":\"%d\",\"e\":\"%d\",\"f\":\"%d\",\"g\":\"", queues, queue, mode == TRANSACTION ? 4 : 0);
    t.born_time = text_hole(&t.frame, TIME_DIGITS);
    text_add(&t.frame, "\",\"h\":\"0\",\"i\":\"");
    if (one_by_one()) t.serial = text_add_properties(&t.frame, "\\u0001", "\\u0002");
    text_add(&t.frame, "\",\"j\":\"0\",\"k\":\"false\",\"m\":\"%s\"},", mode == BATCH ? "true" : "false");
    text_add(&t.frame, "\"flag\":0,\"language\":\"JAVA\",\"opaque\":");
    t.opaque = text_hole(&t.frame, OPAQUE_DIGITS);
    text_add(&t.frame, ",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":475}");
    put_u32(t.frame.bytes, 4 + t.frame.length - 8 + body.length);
    put_u32(t.frame.bytes + 4, t.frame.length - 8);
    return t;
}

static void make_body(void) {
    if (one_by_one()) {
        text_add(&body, "%*s", size, "");
        memset(body.bytes, 'x', size);
        return;
    }
    body_holes = grow(NULL, batch * sizeof *body_holes);
    for (int i = 0; i < batch; i++) {
        int start = body.length, properties;
        text_add(&body, "%*s", 20 + size + 2, "");
        memset(body.bytes + start, 0, 20);
        put_u32(body.bytes + start + 16, size);
        memset(body.bytes + start + 20, 'x', size);
        properties = body.length;
        body_holes[i] = text_add_properties(&body, "\x01", "\x02");
        body.bytes[properties - 2] = (body.length - properties) >> 8;
        body.bytes[properties - 1] = body.length - properties;
        put_u32(body.bytes + start, body.length - start);
    }
}

static void make_requests(void) {
    snprintf(run_mark, sizeof run_mark, "7F000001%04X%08X", getpid() & 0xffff, (unsigned)(clock_ns(CLOCK_REALTIME) / 1000000));
    if (mode != PULL) make_body();
    target_count = topics * queues;
    targets = grow(NULL, target_count * sizeof *targets);
    for (int i = 0; i < target_count; i++) targets[i] = make_target(i / queues, i % queues);
}

#endif
