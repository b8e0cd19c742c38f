/* Native decoding of frequent requests: from the bytes of a frame to a command with a decoded header.
 *
 * Only the usual form is decoded here: a request with a JSON header, a code registered with `quick`, every header field a string of
 * the expected kind, and none of the JSON variants that no client writes. decode_run stops in front of any other frame, valid or
 * not, and leaves it to frame.py and header_schema.py, which also produce the error messages. Everything decoded here gives the same
 * result there; tests/wire/test_accelerated.py compares the two.
 *
 *   command(class)                        the class of commands, whose slots are filled here
 *   quick(code, class, fields)            registers the header of requests with this code; a field is (key, name, kind, default...)
 *   decode_run(data, pos, commands)       appends commands from `pos` on; returns the position of the first frame it did not decode
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if PY_VERSION_HEX < 0x030C0000
#include <structmember.h> /* PyMemberDef; later versions have it in Python.h */
#endif

enum { PLANS_MAX = 16, FIELDS_MAX = 24, EXT_FIELDS_MAX = 64, HEADER_MAX = 8192, LENGTH_MAX = 16 * 1024 * 1024 - 4 };
enum { TEXT, INT, LONG, BOOL };
enum { RESPONSE = 1 };

typedef struct { const uint8_t *at; Py_ssize_t length; bool escaped; } Span;
typedef struct { const char *key; Py_ssize_t key_length; long kind; PyObject *otherwise; Py_ssize_t offset; } Field;
typedef struct { long code; PyTypeObject *type; int count; Field fields[FIELDS_MAX]; } Plan;
typedef struct { const uint8_t *at, *end; } Cursor;

static Plan plans[PLANS_MAX];
static int plan_count;

enum { CODE, OPAQUE, FLAG, BODY, BINARY, JSON, HEADER, SLOTS };
static const char *const slot_names[SLOTS] = {"code", "opaque", "flag", "body", "binary", "_json", "header"};
static PyTypeObject *command_type;
static Py_ssize_t slot_offsets[SLOTS];

/* ---- slots -------------------------------------------------------------------------------------------------------------- */

/* Returns the offset of the slot `name` in instances of a class, or -1 with an exception. */
static Py_ssize_t slot_offset(PyObject *type, const char *name) {
    PyObject *member = PyObject_GetAttrString(type, name);
    Py_ssize_t offset = -1;
    if (!member) return -1;
    if (Py_TYPE(member) == &PyMemberDescr_Type) offset = ((PyMemberDescrObject *)member)->d_member->offset;
    else PyErr_Format(PyExc_TypeError, "%s is not a slot of %R", name, type);
    Py_DECREF(member);
    return offset;
}

/* Steals the reference. The slot must be empty. */
static void fill(PyObject *object, Py_ssize_t offset, PyObject *value) { *(PyObject **)((char *)object + offset) = value; }

/* ---- the usual form of JSON --------------------------------------------------------------------------------------------------- */

static uint32_t get_u32(const uint8_t *p) { return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]; }

static bool take(Cursor *c, char wanted) {
    if (c->at == c->end || *c->at != (uint8_t)wanted) return false;
    c->at++;
    return true;
}

static int hex_digit(uint8_t c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Returns the value of the four hex digits after \u, or -1. */
static int hex4(const uint8_t *p) {
    int value = 0;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(p[i]);
        if (digit < 0) return -1;
        value = value << 4 | digit;
    }
    return value;
}

static bool take_string(Cursor *c, Span *text) {
    if (!take(c, '"')) return false;
    const uint8_t *p = c->at;
    bool escaped = false;
    for (;; p++) {
        if (p == c->end || *p < 0x20) return false;
        if (*p == '"') break;
        if (*p != '\\') continue;
        escaped = true;
        if (++p == c->end) return false;
        if (*p != 'u') {
            if (!memchr("\"\\/bfnrt", *p, 8)) return false;
        } else {
            if (c->end - p < 5 || hex4(p + 1) < 0) return false;
            p += 4;
        }
    }
    *text = (Span){c->at, p - c->at, escaped};
    c->at = p + 1;
    return true;
}

/* Parses a number in its canonical form. */
static bool parse_number(const uint8_t *p, Py_ssize_t length, long kind, int64_t *number) {
    bool negative = length && *p == '-';
    p += negative, length -= negative;
    if (length < 1 || length > 18 || (*p == '0' && (length > 1 || negative))) return false;
    int64_t value = 0;
    for (Py_ssize_t i = 0; i < length; i++) {
        if (p[i] < '0' || p[i] > '9') return false;
        value = 10 * value + (p[i] - '0');
    }
    *number = negative ? -value : value;
    return kind == LONG || (*number >= INT32_MIN && *number <= INT32_MAX);
}

static bool take_number(Cursor *c, int64_t *number) {
    const uint8_t *start = c->at;
    while (c->at < c->end && (*c->at == '-' || (*c->at >= '0' && *c->at <= '9'))) c->at++;
    return parse_number(start, c->at - start, INT, number);
}

static bool is(const Span *text, const char *wanted, Py_ssize_t length) {
    return text->length == length && !memcmp(text->at, wanted, length);
}

/* Resolves the escapes of a string as UTF-8. Returns the length, or -1 for an unusual escape. */
static Py_ssize_t unescape(const Span *text, uint8_t *out) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const uint8_t *p = text->at, *end = p + text->length;
    uint8_t *start = out;
    while (p < end) {
        if (*p != '\\') {
            *out++ = *p++;
            continue;
        }
        if (p[1] != 'u') {
            *out++ = to[(const char *)memchr(from, p[1], 8) - from];
            p += 2;
            continue;
        }
        int c = hex4(p + 2);
        p += 6;
        if (c >= 0xD800 && c < 0xE000) return -1;
        if (c < 0x80) *out++ = c;
        else if (c < 0x800) *out++ = 0xC0 | c >> 6, *out++ = 0x80 | (c & 63);
        else *out++ = 0xE0 | c >> 12, *out++ = 0x80 | (c >> 6 & 63), *out++ = 0x80 | (c & 63);
    }
    return out - start;
}

/* Returns NULL without an exception if the text is not in the usual form. */
static PyObject *to_text(const Span *text) {
    uint8_t plain[HEADER_MAX]; /* unescaping never makes a string longer */
    const uint8_t *at = text->at;
    Py_ssize_t length = text->length;
    if (text->escaped) {
        length = unescape(text, plain);
        if (length < 0) return NULL;
        at = plain;
    }
    PyObject *made = PyUnicode_DecodeUTF8((const char *)at, length, "strict");
    if (!made) PyErr_Clear();
    return made;
}

/* Returns the value of a field, or NULL without an exception if it is not in the usual form. */
static PyObject *to_value(const Span *text, const Field *field) {
    int64_t number;
    if (!text->length && field->otherwise) return Py_NewRef(field->otherwise);
    switch (field->kind) {
    case TEXT: return to_text(text);
    case BOOL: return is(text, "true", 4) ? Py_NewRef(Py_True) : is(text, "false", 5) ? Py_NewRef(Py_False) : NULL;
    default: return parse_number(text->at, text->length, field->kind, &number) ? PyLong_FromLongLong(number) : NULL;
    }
}

/* ---- headers ---------------------------------------------------------------------------------------------------------------- */

/* Clients write the fields of a header in the same order each time: the search continues where the last one ended. */
static const Field *find_field(const Plan *plan, const Span *key, int *next) {
    for (int i = 0; i < plan->count; i++) {
        int at = *next + i < plan->count ? *next + i : *next + i - plan->count;
        if (is(key, plan->fields[at].key, plan->fields[at].key_length)) {
            *next = at + 1 < plan->count ? at + 1 : 0;
            return &plan->fields[at];
        }
    }
    return NULL;
}

static bool is_ascii(const Span *text) {
    for (Py_ssize_t i = 0; i < text->length; i++)
        if (text->at[i] & 0x80) return false;
    return true;
}

static bool take_ext(Cursor *c, const Plan *plan, PyObject *header) {
    int next = 0;
    if (!take(c, '{')) return false;
    if (take(c, '}')) return true;
    for (int n = 0; n < EXT_FIELDS_MAX; n++) {
        Span key, text;
        if (!take_string(c, &key) || key.escaped || !take(c, ':') || !take_string(c, &text)) return false;
        const Field *field = find_field(plan, &key, &next);
        if (field) {
            PyObject *value = to_value(&text, field), **slot = (PyObject **)((char *)header + field->offset);
            if (!value || *slot) return Py_XDECREF(value), false; /* a repeated key */
            *slot = value;
        } else if (!is_ascii(&key) || !is_ascii(&text)) return false; /* possibly invalid UTF-8 */
        if (take(c, '}')) return true;
        if (!take(c, ',')) return false;
    }
    return false;
}

static bool fill_missing(const Plan *plan, PyObject *header) {
    for (int i = 0; i < plan->count; i++) {
        PyObject **slot = (PyObject **)((char *)header + plan->fields[i].offset);
        if (*slot) continue;
        if (!plan->fields[i].otherwise) return false;
        *slot = Py_NewRef(plan->fields[i].otherwise);
    }
    return true;
}

/* Decodes the rest of a header after its code. */
static bool take_header(Cursor *c, const Plan *plan, PyObject *header, int64_t *opaque, int64_t *flag) {
    enum { HAS_EXT = 1, HAS_OPAQUE = 2, HAS_FLAG = 4 };
    int has = 0;
    while (take(c, ',')) {
        Span key, text;
        int64_t number;
        if (!take_string(c, &key) || !take(c, ':')) return false;
        if (is(&key, "extFields", 9) && !(has & HAS_EXT)) {
            has |= HAS_EXT;
            if (!take_ext(c, plan, header)) return false;
        } else if (is(&key, "opaque", 6)) {
            has |= HAS_OPAQUE;
            if (!take_number(c, opaque)) return false;
        } else if (is(&key, "flag", 4)) {
            has |= HAS_FLAG;
            if (!take_number(c, flag)) return false;
        } else if (is(&key, "version", 7)) {
            if (!take_number(c, &number)) return false;
        } else if (is(&key, "language", 8) || is(&key, "serializeTypeCurrentRPC", 23)) {
            if (!take_string(c, &text) || !is_ascii(&text)) return false;
        } else return false;
    }
    return take(c, '}') && c->at == c->end && has == (HAS_EXT | HAS_OPAQUE | HAS_FLAG) && !(*flag & RESPONSE);
}

static const Plan *find_plan(Cursor *c) {
    static const char begin[] = "{\"code\":";
    int64_t code;
    if (c->end - c->at < 8 || memcmp(c->at, begin, 8)) return NULL;
    c->at += 8;
    if (!take_number(c, &code)) return NULL;
    for (int i = 0; i < plan_count; i++)
        if (plans[i].code == code) return &plans[i];
    return NULL;
}

static PyObject *make_command(long code, int64_t opaque, int64_t flag, const uint8_t *json, Py_ssize_t json_length, PyObject *header,
                              const uint8_t *body, Py_ssize_t body_length) {
    PyObject *command = command_type->tp_alloc(command_type, 0);
    if (!command) return NULL;
    fill(command, slot_offsets[CODE], PyLong_FromLong(code));
    fill(command, slot_offsets[OPAQUE], PyLong_FromLongLong(opaque));
    fill(command, slot_offsets[FLAG], PyLong_FromLongLong(flag));
    fill(command, slot_offsets[BODY], PyBytes_FromStringAndSize((const char *)body, body_length));
    fill(command, slot_offsets[JSON], PyBytes_FromStringAndSize((const char *)json, json_length));
    fill(command, slot_offsets[BINARY], Py_NewRef(Py_False));
    fill(command, slot_offsets[HEADER], Py_NewRef(header));
    if (PyErr_Occurred()) Py_CLEAR(command);
    return command;
}

/* Returns the command of a complete frame of `length` bytes at `json`, or NULL without an exception if it is not in the usual form. */
static PyObject *decode_frame(const uint8_t *json, Py_ssize_t json_length, Py_ssize_t body_length) {
    Cursor c = {json, json + json_length};
    const Plan *plan = find_plan(&c);
    if (!plan) return NULL;
    PyObject *header = plan->type->tp_alloc(plan->type, 0), *command = NULL;
    int64_t opaque, flag;
    if (header && take_header(&c, plan, header, &opaque, &flag) && fill_missing(plan, header))
        command = make_command(plan->code, opaque, flag, json, json_length, header, c.end, body_length);
    Py_XDECREF(header);
    return command;
}

PyDoc_STRVAR(decode_run_doc, "decode_run(data, pos, commands) -> position of the first frame it did not decode.");

static PyObject *decode_run(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    if (count != 3 || !PyBytes_Check(args[0]) || !PyList_Check(args[2]))
        return PyErr_SetString(PyExc_TypeError, "decode_run takes bytes, a position and a list"), NULL;
    Py_ssize_t pos = PyLong_AsSsize_t(args[1]), size = PyBytes_GET_SIZE(args[0]);
    const uint8_t *data = (const uint8_t *)PyBytes_AS_STRING(args[0]);
    if (PyErr_Occurred()) return NULL;
    while (command_type && pos >= 0 && size - pos >= 8) {
        uint32_t length = get_u32(data + pos), header_length = get_u32(data + pos + 4); /* the top byte is 0: JSON */
        if (length > LENGTH_MAX || header_length > HEADER_MAX || header_length < 1 || header_length + 4 > length
            || (Py_ssize_t)length > size - pos - 4)
            break;
        PyObject *command = decode_frame(data + pos + 8, header_length, length - 4 - header_length);
        if (!command) {
            if (PyErr_Occurred()) return NULL;
            break;
        }
        int failed = PyList_Append(args[2], command);
        Py_DECREF(command);
        if (failed) return NULL;
        pos += 4 + length;
    }
    return PyLong_FromSsize_t(pos);
}

/* ---- registration ---------------------------------------------------------------------------------------------------- */

PyDoc_STRVAR(command_doc, "command(class): the class of commands, with slots.");

static PyObject *command(PyObject *module, PyObject *type) {
    if (!PyType_Check(type)) return PyErr_SetString(PyExc_TypeError, "command takes a class"), NULL;
    for (int i = 0; i < SLOTS; i++)
        if ((slot_offsets[i] = slot_offset(type, slot_names[i])) < 0) return NULL;
    command_type = (PyTypeObject *)Py_NewRef(type);
    Py_RETURN_NONE;
}

/* A required field is (key, name, kind), an optional one (key, name, kind, default). */
static bool set_field(Field *field, PyObject *type, PyObject *said) {
    const char *name;
    if (!PyArg_ParseTuple(said, "s#sl|O", &field->key, &field->key_length, &name, &field->kind, &field->otherwise)) return false;
    if (field->kind < TEXT || field->kind > BOOL) return PyErr_SetString(PyExc_ValueError, "unknown kind of field"), false;
    field->offset = slot_offset(type, name);
    return field->offset >= 0;
}

PyDoc_STRVAR(quick_doc, "quick(code, class, fields): registers the header of requests with this code, once for each code.");

static PyObject *quick(PyObject *module, PyObject *args) {
    long code;
    PyObject *type, *fields;
    if (!PyArg_ParseTuple(args, "lO!O!", &code, &PyType_Type, &type, &PyTuple_Type, &fields)) return NULL;
    if (plan_count == PLANS_MAX || PyTuple_GET_SIZE(fields) > FIELDS_MAX)
        return PyErr_SetString(PyExc_ValueError, "too many codes, or fields"), NULL;
    Plan plan = {.code = code, .type = (PyTypeObject *)type, .count = PyTuple_GET_SIZE(fields)};
    for (int i = 0; i < plan.count; i++)
        if (!set_field(&plan.fields[i], type, PyTuple_GET_ITEM(fields, i))) return NULL;
    Py_INCREF(type);
    Py_INCREF(fields); /* holds the keys and the defaults */
    plans[plan_count++] = plan;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"command", command, METH_O, command_doc},
    {"quick", quick, METH_VARARGS, quick_doc},
    {"decode_run", (PyCFunction)(void (*)(void))decode_run, METH_FASTCALL, decode_run_doc},
    {0},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "firearrow.wire._native", NULL, -1, methods};

PyMODINIT_FUNC PyInit__native(void) { return PyModule_Create(&definition); }
