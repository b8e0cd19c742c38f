/* Native implementations of the store's hot loops: records, the messages of a batch, keys for the index. The Python versions
 * (commitlog/log.py, key_index/index.py, key_index/file.py) are the reference; tests compare the two. See firearrow/_native.py.
 *
 *   record(...)         build a record of the log and its queue entry
 *   hash_keys(run)      hash, log offset and time of every index entry of messages
 *   put_entries(...)    build entries of an index file and link them into its slots
 *   batch_records(...)  build records and queue entries from the body of a batch send
 *   count_intact(...)   compare records that were read with their queue entries and checksums
 *
 * Formats: numbers are big-endian. A properties block is name 0x01 value 0x02, repeated; the last nonempty value of a name counts.
 * Lengths from outside are checked before anything is read or written.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { VALUE_END = 2, NAMES = 3 };
enum { MAGIC_V1 = (int)0xDAA320A7 };
enum { HEAD_BYTES = 88, SAME_BYTES = 48, BATCH_HEAD_BYTES = 20, BATCH_FIXED_BYTES = 22, QUEUE_ENTRY_BYTES = 20 };
enum { INDEX_ENTRY_BYTES = 20, PAGE_SHIFT = 10, LONGEST_TOPIC = 127 };

typedef struct { const uint8_t *at; Py_ssize_t length; } Span;

static uint32_t get_u32(const uint8_t *p) { return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]; }
static void put_u32(uint8_t *p, uint32_t v) { p[0] = v >> 24, p[1] = v >> 16, p[2] = v >> 8, p[3] = v; }
static void put_u64(uint8_t *p, uint64_t v) { put_u32(p, v >> 32), put_u32(p + 4, v); }

/* ---- hashes ------------------------------------------------------------------------------------------------------------- */

static uint32_t hash_object(uint32_t hash, PyObject *text) {
    int kind = PyUnicode_KIND(text);
    const void *data = PyUnicode_DATA(text);
    for (Py_ssize_t i = 0; i < PyUnicode_GET_LENGTH(text); i++) {
        Py_UCS4 c = PyUnicode_READ(kind, data, i);
        if (c > 0xFFFF) {
            hash = 31 * hash + Py_UNICODE_HIGH_SURROGATE(c);
            c = Py_UNICODE_LOW_SURROGATE(c);
        }
        hash = 31 * hash + c;
    }
    return hash;
}

/* Continue Java's String.hashCode from `*hash` over UTF-8; invalid bytes are U+FFFD. False: an exception is set. */
static bool hash_on(uint32_t *hash, Span text) {
    uint32_t h = *hash;
    uint8_t all = 0;
    for (Py_ssize_t i = 0; i < text.length; i++) {
        h = 31 * h + text.at[i];
        all |= text.at[i];
    }
    if (all & 0x80) {
        PyObject *decoded = PyUnicode_DecodeUTF8((const char *)text.at, text.length, "replace");
        if (!decoded) return false;
        h = hash_object(*hash, decoded);
        Py_DECREF(decoded);
    }
    *hash = h;
    return true;
}

enum { UNIQUE_KEY, KEYS, TAGS };
static const struct { const char *text; Py_ssize_t length; } names[NAMES] = {{"UNIQ_KEY\1", 9}, {"KEYS\1", 5}, {"TAGS\1", 5}};

/* The values of the names above; absent ones have length 0. */
static void find_values(const uint8_t *block, Py_ssize_t length, Span found[NAMES]) {
    memset(found, 0, NAMES * sizeof *found);
    const uint8_t *at = block, *end = block + length;
    while (at < end) {
        const uint8_t *stop = memchr(at, VALUE_END, end - at);
        if (!stop) stop = end;
        for (int n = 0; n < NAMES; n++) {
            if (stop - at > names[n].length && !memcmp(at, names[n].text, names[n].length)) {
                found[n] = (Span){at + names[n].length, stop - at - names[n].length};
                break;
            }
        }
        at = stop + 1;
    }
}

/* ---- the key index ------------------------------------------------------------------------------------------------------ */

typedef struct { int64_t *hashes, *offsets, *times; Py_ssize_t count, room; } Entries;

static bool grow(Entries *e) {
    Py_ssize_t room = e->room ? 2 * e->room : 4096;
    int64_t **columns[] = {&e->hashes, &e->offsets, &e->times};
    for (int i = 0; i < 3; i++) {
        int64_t *larger = PyMem_Realloc(*columns[i], room * sizeof **columns[i]);
        if (!larger) return PyErr_NoMemory(), false;
        *columns[i] = larger;
    }
    e->room = room;
    return true;
}

static bool add_entry(Entries *e, uint32_t prefix, Span text, int64_t offset, int64_t time) {
    if (e->count == e->room && !grow(e)) return false;
    if (!hash_on(&prefix, text)) return false;
    int32_t hash = (int32_t)prefix;
    /* The absolute value, 0 for INT32_MIN. */
    e->hashes[e->count] = hash == INT32_MIN ? 0 : hash < 0 ? -hash : hash;
    e->offsets[e->count] = offset;
    e->times[e->count++] = time;
    return true;
}

static bool add_message(Entries *e, uint32_t key_prefix, uint32_t tag_prefix, const Span found[NAMES], int64_t offset, int64_t time) {
    if (found[UNIQUE_KEY].length && !add_entry(e, key_prefix, found[UNIQUE_KEY], offset, time)) return false;
    const uint8_t *at = found[KEYS].at, *end = at + found[KEYS].length;
    while (at < end) {
        const uint8_t *stop = memchr(at, ' ', end - at);
        if (!stop) stop = end;
        if (stop > at && !add_entry(e, key_prefix, (Span){at, stop - at}, offset, time)) return false;
        at = stop + 1;
    }
    return !found[TAGS].length || add_entry(e, tag_prefix, found[TAGS], offset, time);
}

static bool hash_run(Entries *e, PyObject *run) {
    PyObject *topic = NULL; /* of the previous message: most have the same */
    uint32_t key_prefix = 0, tag_prefix = 0;
    int64_t before = -1;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(run); i++) {
        PyObject *message = PyList_GET_ITEM(run, i);
        if (!PyTuple_CheckExact(message) || PyTuple_GET_SIZE(message) != 4 || !PyUnicode_Check(PyTuple_GET_ITEM(message, 2))
            || !PyBytes_Check(PyTuple_GET_ITEM(message, 3)))
            return PyErr_SetString(PyExc_TypeError, "a message is (offset, time, topic, properties)"), false;
        int64_t offset = PyLong_AsLongLong(PyTuple_GET_ITEM(message, 0)), time = PyLong_AsLongLong(PyTuple_GET_ITEM(message, 1));
        if (PyErr_Occurred()) return false;
        if (offset <= before) return PyErr_SetString(PyExc_AssertionError, "messages are added in log order"), false;
        before = offset;
        if (PyTuple_GET_ITEM(message, 2) != topic) {
            topic = PyTuple_GET_ITEM(message, 2);
            key_prefix = 31 * hash_object(0, topic) + '#';
            tag_prefix = (key_prefix * 31 + 'T') * 31 + '#';
        }
        PyObject *block = PyTuple_GET_ITEM(message, 3);
        Span found[NAMES];
        find_values((const uint8_t *)PyBytes_AS_STRING(block), PyBytes_GET_SIZE(block), found);
        if (!add_message(e, key_prefix, tag_prefix, found, offset, time)) return false;
    }
    return true;
}

PyDoc_STRVAR(hash_keys_doc, "hash_keys(run) -> (hashes, offsets, times), each the bytes of 64-bit integers of this machine.");

static PyObject *hash_keys(PyObject *module, PyObject *run) {
    Entries e = {0};
    PyObject *result = NULL;
    if (!PyList_CheckExact(run)) PyErr_SetString(PyExc_TypeError, "a run is a list");
    else if (hash_run(&e, run)) {
        Py_ssize_t size = e.count * sizeof(int64_t);
        result = Py_BuildValue("(y#y#y#)", e.count ? (char *)e.hashes : "", size, e.count ? (char *)e.offsets : "", size,
                               e.count ? (char *)e.times : "", size);
    }
    PyMem_Free(e.hashes);
    PyMem_Free(e.offsets);
    PyMem_Free(e.times);
    return result;
}

/* Whole seconds since `begin`, as in an entry. */
static uint32_t time_diff(int64_t time, int64_t begin) {
    int64_t seconds = begin > 0 ? (time - begin) / 1000 : 0;
    return seconds < 0 ? 0 : seconds > INT32_MAX ? INT32_MAX : seconds;
}

PyDoc_STRVAR(put_entries_doc,
    "put_entries(slots, dirty_pages, hashes, offsets, times, start, end, number, first_begin_ms, begin_ms) -> (entries, fresh)\n\n"
    "The entries start..end of what hash_keys gave, numbered from `number` on and linked into the slots, which is done then. The\n"
    "first is measured against `first_begin_ms`, the others against `begin_ms`. `fresh`: how many slots were empty before.");

static PyObject *put_entries(PyObject *module, PyObject *args) {
    Py_buffer slots, dirty, hashes, offsets, times;
    long long start, end, number, first_begin, begin;
    PyObject *result = NULL, *entries = NULL;
    if (!PyArg_ParseTuple(args, "w*w*y*y*y*LLLLL", &slots, &dirty, &hashes, &offsets, &times, &start, &end, &number, &first_begin,
                          &begin))
        return NULL;
    Py_ssize_t slot_count = slots.len / 4, size = end * (Py_ssize_t)sizeof(int64_t);
    if (slot_count < 1 || (dirty.len << PAGE_SHIFT) < slot_count || start < 0 || end < start || end > hashes.len / 8
        || offsets.len < size || times.len < size || number < 1 || number + (end - start) > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "entries, slots and pages do not fit each other");
        goto done;
    }
    entries = PyBytes_FromStringAndSize(NULL, (end - start) * INDEX_ENTRY_BYTES);
    if (!entries) goto done;
    uint8_t *out = (uint8_t *)PyBytes_AS_STRING(entries);
    Py_ssize_t fresh = 0;
    for (Py_ssize_t i = start; i < end; i++, out += INDEX_ENTRY_BYTES) {
        int64_t hash = ((int64_t *)hashes.buf)[i];
        Py_ssize_t slot = (hash < 0 ? 0 : hash) % slot_count;
        int32_t previous = ((int32_t *)slots.buf)[slot];
        put_u32(out, hash);
        put_u64(out + 4, ((int64_t *)offsets.buf)[i]);
        put_u32(out + 12, time_diff(((int64_t *)times.buf)[i], i == start ? first_begin : begin));
        put_u32(out + 16, previous);
        fresh += previous == 0;
        ((int32_t *)slots.buf)[slot] = number + (i - start);
        ((uint8_t *)dirty.buf)[slot >> PAGE_SHIFT] = 1;
    }
    result = Py_BuildValue("(On)", entries, fresh);
done:
    Py_XDECREF(entries);
    PyBuffer_Release(&slots);
    PyBuffer_Release(&dirty);
    PyBuffer_Release(&hashes);
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&times);
    return result;
}

/* ---- batches ------------------------------------------------------------------------------------------------------------ */

/* CRC-32 as in zlib, eight bytes at a time. */
static uint32_t crc_tables[8][256];

static void make_crc_tables(void) {
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t c = n;
        for (int bit = 0; bit < 8; bit++) c = c & 1 ? c >> 1 ^ 0xEDB88320u : c >> 1;
        crc_tables[0][n] = c;
    }
    for (int t = 1; t < 8; t++)
        for (int n = 0; n < 256; n++) crc_tables[t][n] = crc_tables[t - 1][n] >> 8 ^ crc_tables[0][crc_tables[t - 1][n] & 255];
}

static uint32_t crc32_of(const uint8_t *p, Py_ssize_t length) {
    uint32_t c = ~0u;
    for (; length >= 8; p += 8, length -= 8) {
        uint32_t low = c ^ (p[0] | p[1] << 8 | p[2] << 16 | (uint32_t)p[3] << 24);
        c = crc_tables[7][low & 255] ^ crc_tables[6][low >> 8 & 255] ^ crc_tables[5][low >> 16 & 255] ^ crc_tables[4][low >> 24]
            ^ crc_tables[3][p[4]] ^ crc_tables[2][p[5]] ^ crc_tables[1][p[6]] ^ crc_tables[0][p[7]];
    }
    while (length-- > 0) c = c >> 8 ^ crc_tables[0][(c ^ *p++) & 255];
    return ~c;
}

/* Destination and first fields of a record. */
typedef struct { int64_t size, queue_id, flag, queue_offset, offset, body_length, tags_code; uint32_t crc; } Place;

static void put_head(uint8_t *out, const Place *place) {
    put_u32(out, place->size);
    put_u32(out + 4, (uint32_t)MAGIC_V1);
    put_u32(out + 8, place->crc & 0x7FFFFFFF);
    put_u32(out + 12, place->queue_id);
    put_u32(out + 16, place->flag);
    put_u64(out + 20, place->queue_offset);
    put_u64(out + 28, place->offset);
    put_u32(out + 36 + SAME_BYTES, place->body_length);
}

static void put_queue_entry(uint8_t *out, const Place *place) {
    put_u64(out, place->offset);
    put_u32(out + 8, place->size);
    put_u64(out + 12, place->tags_code);
}

static bool is_i32(int64_t v) { return v >= INT32_MIN && v <= INT32_MAX; }

PyDoc_STRVAR(record_doc,
    "record(body, properties, topic, queue_id, flag, queue_offset, offset, tags_code, sys_flag, born_ms, born_host, store_ms,\n"
    "       store_host, reconsume_times, prepared_offset) -> (record, queue entry)\n\n"
    "Of version 1, with IPv4 hosts; `topic` with its length in front.");

static PyObject *record(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    enum { A_BODY, A_PROPERTIES, A_TOPIC, A_QUEUE_ID, A_FLAG, A_QUEUE_OFFSET, A_OFFSET, A_TAGS_CODE, A_SYS_FLAG, A_BORN_MS,
           A_BORN_HOST, A_STORE_MS, A_STORE_HOST, A_RECONSUME_TIMES, A_PREPARED_OFFSET, ARGUMENTS };
    static const char kinds[ARGUMENTS + 1] = "bbbiiqqqiqbqbiq";
    Span text[ARGUMENTS];
    int64_t number[ARGUMENTS];
    if (count != ARGUMENTS) return PyErr_Format(PyExc_TypeError, "record takes %d arguments", ARGUMENTS);
    for (int i = 0; i < ARGUMENTS; i++) {
        if (kinds[i] == 'b') {
            if (!PyBytes_Check(args[i])) return PyErr_Format(PyExc_TypeError, "argument %d of a record must be bytes", i);
            text[i] = (Span){(const uint8_t *)PyBytes_AS_STRING(args[i]), PyBytes_GET_SIZE(args[i])};
        } else {
            number[i] = PyLong_AsLongLong(args[i]);
            if (number[i] == -1 && PyErr_Occurred()) return NULL;
            if (kinds[i] == 'i' && !is_i32(number[i])) return PyErr_Format(PyExc_ValueError, "argument %d takes 32 bits", i);
        }
    }
    Span body = text[A_BODY], properties = text[A_PROPERTIES], topic = text[A_TOPIC];
    int64_t size = HEAD_BYTES + (int64_t)body.length + topic.length + 2 + properties.length;
    if (properties.length > INT16_MAX)
        return PyErr_Format(PyExc_ValueError, "properties of %zd bytes: at most 32767 fit into a record", properties.length);
    if (topic.length < 1 || topic.length > 1 + LONGEST_TOPIC || size > INT32_MAX
        || text[A_BORN_HOST].length != 8 || text[A_STORE_HOST].length != 8)
        return PyErr_SetString(PyExc_ValueError, "a part of a record has not the size that it can have"), NULL;
    PyObject *made = PyBytes_FromStringAndSize(NULL, size), *entry = PyBytes_FromStringAndSize(NULL, QUEUE_ENTRY_BYTES);
    PyObject *result = made && entry ? PyTuple_Pack(2, made, entry) : NULL;
    if (result) {
        Place place = {size, number[A_QUEUE_ID], number[A_FLAG], number[A_QUEUE_OFFSET], number[A_OFFSET], body.length,
                       number[A_TAGS_CODE], crc32_of(body.at, body.length)};
        uint8_t *out = (uint8_t *)PyBytes_AS_STRING(made);
        put_head(out, &place);
        put_u32(out + 36, number[A_SYS_FLAG]);
        put_u64(out + 40, number[A_BORN_MS]);
        memcpy(out + 48, text[A_BORN_HOST].at, 8);
        put_u64(out + 56, number[A_STORE_MS]);
        memcpy(out + 64, text[A_STORE_HOST].at, 8);
        put_u32(out + 72, number[A_RECONSUME_TIMES]);
        put_u64(out + 76, number[A_PREPARED_OFFSET]);
        out += HEAD_BYTES;
        memcpy(out, body.at, body.length);
        out += body.length;
        memcpy(out, topic.at, topic.length);
        out += topic.length;
        out[0] = properties.length >> 8, out[1] = properties.length;
        memcpy(out + 2, properties.at, properties.length);
        put_queue_entry((uint8_t *)PyBytes_AS_STRING(entry), &place);
    }
    Py_XDECREF(made);
    Py_XDECREF(entry);
    return result;
}

/* One message of a batch; false if its lengths do not fit the rest of the body. */
typedef struct { uint32_t flag; Span body, properties; } BatchMessage;

static bool next_message(const uint8_t **at, const uint8_t *end, BatchMessage *message) {
    const uint8_t *p = *at;
    if (end - p < BATCH_FIXED_BYTES) return false;
    int32_t total = get_u32(p), length = get_u32(p + 16);
    if (total < BATCH_FIXED_BYTES || total > end - p || length < 0 || length > total - BATCH_FIXED_BYTES) return false;
    const uint8_t *after = p + BATCH_HEAD_BYTES + length;
    Py_ssize_t properties = after[0] << 8 | after[1];
    if (properties > INT16_MAX || total != BATCH_FIXED_BYTES + length + properties) return false;
    *message = (BatchMessage){get_u32(p + 12), {p + BATCH_HEAD_BYTES, length}, {after + 2, properties}};
    *at = p + total;
    return true;
}

/* 0: no tags. */
static bool tags_code(Span properties, int64_t *code) {
    Span found[NAMES];
    uint32_t hash = 0;
    find_values(properties.at, properties.length, found);
    if (!hash_on(&hash, found[TAGS])) return false;
    *code = (int32_t)hash;
    return true;
}

PyDoc_STRVAR(batch_records_doc,
    "batch_records(body, queue_id, queue_offset, offset, same, topic) -> (records, queue entries, offsets, properties) or None\n\n"
    "What the log and the queue get from the body of a batch send, whose first message goes to `offset` and `queue_offset`. `same`:\n"
    "the bytes of a record from SYSFLAG to PREPAREDTRANSACTIONOFFSET, `topic`: with its length. None: the body is no batch.");

static PyObject *batch_records(PyObject *module, PyObject *args) {
    Py_buffer body, same, topic;
    int queue_id;
    long long queue_offset, offset;
    PyObject *records = NULL, *entries = NULL, *offsets = NULL, *blocks = NULL, *result = NULL;
    if (!PyArg_ParseTuple(args, "y*iLLy*y*", &body, &queue_id, &queue_offset, &offset, &same, &topic)) return NULL;
    if (same.len != SAME_BYTES || topic.len < 1 || topic.len > 1 + LONGEST_TOPIC) {
        PyErr_SetString(PyExc_ValueError, "not what all records of a batch have in common");
        goto done;
    }
    const uint8_t *start = body.buf, *end = start + body.len, *at = start;
    Py_ssize_t count = 0;
    BatchMessage message;
    for (; at < end; count++) {
        if (!next_message(&at, end, &message)) {
            result = Py_NewRef(Py_None);
            goto done;
        }
    }
    Py_ssize_t more = HEAD_BYTES + topic.len + 2 - BATCH_FIXED_BYTES;
    records = PyBytes_FromStringAndSize(NULL, body.len + count * more);
    entries = PyBytes_FromStringAndSize(NULL, count * QUEUE_ENTRY_BYTES);
    offsets = PyList_New(count);
    blocks = PyList_New(count);
    if (!records || !entries || !offsets || !blocks) goto done;
    uint8_t *out = (uint8_t *)PyBytes_AS_STRING(records), *entry = (uint8_t *)PyBytes_AS_STRING(entries);
    at = start;
    for (Py_ssize_t i = 0; i < count; i++, entry += QUEUE_ENTRY_BYTES) {
        int64_t code;
        next_message(&at, end, &message);
        Py_ssize_t size = HEAD_BYTES + message.body.length + topic.len + 2 + message.properties.length;
        if (!tags_code(message.properties, &code)) goto done;
        uint32_t crc = crc32_of(message.body.at, message.body.length);
        Place place = {size, queue_id, message.flag, queue_offset + i, offset, message.body.length, code, crc};
        put_head(out, &place);
        memcpy(out + 36, same.buf, SAME_BYTES);
        out += HEAD_BYTES;
        memcpy(out, message.body.at, message.body.length);
        out += message.body.length;
        memcpy(out, topic.buf, topic.len);
        out += topic.len;
        memcpy(out, message.properties.at - 2, message.properties.length + 2); /* preceded by their length */
        out += message.properties.length + 2;
        put_queue_entry(entry, &place);
        PyObject *number = PyLong_FromLongLong(offset);
        PyObject *block = PyBytes_FromStringAndSize((const char *)message.properties.at, message.properties.length);
        if (number) PyList_SET_ITEM(offsets, i, number);
        if (block) PyList_SET_ITEM(blocks, i, block);
        if (!number || !block) goto done;
        offset += size;
    }
    result = PyTuple_Pack(4, records, entries, offsets, blocks);
done:
    Py_XDECREF(records);
    Py_XDECREF(entries);
    Py_XDECREF(offsets);
    Py_XDECREF(blocks);
    PyBuffer_Release(&body);
    PyBuffer_Release(&same);
    PyBuffer_Release(&topic);
    return result;
}

/* ---- verification ------------------------------------------------------------------------------------------------------- */

enum { ENTRY_SIZE_AT = 8, AT_CRC = 8, AT_QUEUE_ID = 12, AT_QUEUE_OFFSET = 20, AT_OFFSET = 28, AT_SYS_FLAG = 36, SMALLEST_RECORD = 91 };
enum { BORN_HOST_V6 = 0x10, STORE_HOST_V6 = 0x20, IPV6_EXTRA_BYTES = 12, MAGIC_V2 = (int)0xDAA320AB };

static uint64_t get_u64(const uint8_t *p) { return (uint64_t)get_u32(p) << 32 | get_u32(p + 4); }

typedef struct { uint32_t queue_id; int64_t queue_offset; Span topic; } Owner;

/* Whether a whole record of `size` bytes belongs at log offset `offset` and, if the owner has a topic, to that queue. */
static bool is_intact(const uint8_t *p, int64_t size, uint64_t offset, const Owner *owner) {
    uint32_t magic = get_u32(p + 4), sys_flag = get_u32(p + AT_SYS_FLAG);
    if (get_u32(p) != size || (magic != (uint32_t)MAGIC_V1 && magic != (uint32_t)MAGIC_V2) || get_u64(p + AT_OFFSET) != offset)
        return false;
    int64_t at = HEAD_BYTES + (sys_flag & BORN_HOST_V6 ? IPV6_EXTRA_BYTES : 0) + (sys_flag & STORE_HOST_V6 ? IPV6_EXTRA_BYTES : 0);
    int64_t width = magic == (uint32_t)MAGIC_V2 ? 2 : 1;
    if (at + width + 2 > size) return false;
    int64_t body = (int32_t)get_u32(p + at - 4);
    if (body < 0 || at + body + width + 2 > size) return false;
    const uint8_t *topic = p + at + body + width;
    int64_t topic_length = width == 2 ? topic[-2] << 8 | topic[-1] : topic[-1];
    int64_t rest = size - (topic - p) - topic_length;
    if (rest < 2 || rest != 2 + (topic[topic_length] << 8 | topic[topic_length + 1])) return false;
    if (owner->topic.length
        && (get_u32(p + AT_QUEUE_ID) != owner->queue_id || (int64_t)get_u64(p + AT_QUEUE_OFFSET) != owner->queue_offset
            || topic_length != owner->topic.length || memcmp(topic, owner->topic.at, topic_length)))
        return false;
    return (crc32_of(p + at, body) & 0x7FFFFFFF) == get_u32(p + AT_CRC);
}

PyDoc_STRVAR(count_intact_doc,
    "count_intact(records, entries, queue_id, queue_offset, topic) -> number of intact records before the first damaged one\n\n"
    "`records` are those of consecutive queue entries, one after the other; the first has `queue_offset`. Without a topic (b\"\")\n"
    "any queue is accepted.");

static PyObject *count_intact(PyObject *module, PyObject *args) {
    Py_buffer records, entries, topic;
    int queue_id;
    long long queue_offset;
    if (!PyArg_ParseTuple(args, "y*y*iLy*", &records, &entries, &queue_id, &queue_offset, &topic)) return NULL;
    const uint8_t *at = records.buf, *end = at + records.len, *entry = entries.buf;
    Py_ssize_t count = entries.len / QUEUE_ENTRY_BYTES, good = 0;
    Owner owner = {queue_id, queue_offset, {topic.buf, topic.len}};
    for (; good < count; good++, entry += QUEUE_ENTRY_BYTES, owner.queue_offset++) {
        int64_t size = (int32_t)get_u32(entry + ENTRY_SIZE_AT);
        if (size < SMALLEST_RECORD || size > end - at || !is_intact(at, size, get_u64(entry), &owner)) break;
        at += size;
    }
    PyBuffer_Release(&records);
    PyBuffer_Release(&entries);
    PyBuffer_Release(&topic);
    return PyLong_FromSsize_t(good);
}

/* ---- module ------------------------------------------------------------------------------------------------------------- */

static PyMethodDef methods[] = {
    {"record", (PyCFunction)(void (*)(void))record, METH_FASTCALL, record_doc},
    {"hash_keys", hash_keys, METH_O, hash_keys_doc},
    {"put_entries", put_entries, METH_VARARGS, put_entries_doc},
    {"batch_records", batch_records, METH_VARARGS, batch_records_doc},
    {"count_intact", count_intact, METH_VARARGS, count_intact_doc},
    {0},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "firearrow.store._native", NULL, 0, methods};

PyMODINIT_FUNC PyInit__native(void) {
    make_crc_tables();
    return PyModuleDef_Init(&definition);
}
