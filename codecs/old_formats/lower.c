/* Records of format v2 as messages of the formats v0 and v1: what consumers get that read nothing newer.

   Numbers, checksums, messages and what is used of CPython are those of the kernel, whose source is included: so there
   is one text of each. Its functions for Python stay in the library, where nothing calls them.

   As there, the Python beside it (lowering.py) is the reference: the function here makes the same bytes, or returns None
   for whatever is unusual or wrong, and no call takes more than a few milliseconds. */
#include "../kernel/kernel.c"

enum {
    LOWER_REVISION = 1, /* of what is below; codecs/old_formats/__init__.py takes no other */
    LOG_APPEND_TIME = 8, /* in a message's attributes */
    HEADER_BYTES_MIN = 2, /* of a record's header: two lengths */
};

/* Any negative length is null, as in Kafka. */
static inline int nullable_field(const uint8_t **at, const uint8_t *end, const uint8_t **data, int64_t *bytes) {
    if (!varlong(at, end, bytes) || *bytes > end - *at) return 0;
    *data = *at;
    if (*bytes < 0) *bytes = -1;
    else *at += *bytes;
    return 1;
}

/* The next record of a batch that a log holds, and `at` after it; 0 if it is not whole, or wrong. What is in its headers
   is not looked at: they are left out. */
static inline int read_stored(const uint8_t **at, const uint8_t *end, int64_t base_timestamp, struct record *record,
                              int64_t *offset_delta, int64_t *headers) {
    int64_t length, timestamp_delta;
    if (!varlong(at, end, &length) || length < 1 || length > end - *at) return 0;
    const uint8_t *p = *at, *behind = p + length;
    if (*p++ >= 0x80) return 0; /* attributes: unused, one byte */
    if (!varlong(&p, behind, &timestamp_delta) || !varlong(&p, behind, offset_delta)) return 0;
    if (!nullable_field(&p, behind, &record->key, &record->key_bytes)) return 0;
    if (!nullable_field(&p, behind, &record->value, &record->value_bytes)) return 0;
    if (!varlong(&p, behind, headers) || *headers < 0 || *headers > (behind - p) / HEADER_BYTES_MIN) return 0;
    if (!*headers && p != behind) return 0;
    record->timestamp = (int64_t)((uint64_t)base_timestamp + (uint64_t)timestamp_delta); /* wraps, as in Java */
    *at = behind;
    return 1;
}

/* What lower_part is given after the data. */
enum {
    MAGIC,
    ATTRIBUTES,
    SHIFT,          /* what makes a message's offset of a record's offset delta */
    BASE_TIMESTAMP, /* of the batch */
    APPEND_TIME,    /* of every message, if the attributes say so */
    POSITION,       /* of the next record */
    RECORDS,        /* that may be read */
    BEFORE,         /* offset delta of the record before */
    FIRST,          /* offset delta below which records are left out */
    LAST,           /* the highest offset delta that a record may have */
    ROOM,           /* bytes of messages */
    AT_LEAST_ONE,   /* the first message is made even if there is no room for it */
    NUMBERS
};

/* lower_part(data, numbers ...): the next records as plain messages, as many as there is room for, and a megabyte */
static PyObject *lower_part(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    Py_buffer data;
    int64_t n[NUMBERS];
    PyObject *part = NULL, *result = NULL;
    (void)module;
    if (count != NUMBERS + 1) return wrong_arguments();
    for (int i = 0; i < NUMBERS; i++)
        if (!number(args[i + 1], &n[i])) return NULL;
    if (!bytes_of(args[0], &data)) return NULL;
    if (n[MAGIC] < 0 || n[MAGIC] > 1 || n[POSITION] < 0 || n[POSITION] > data.len || n[RECORDS] < 0
        || n[RECORDS] > (data.len - n[POSITION]) / RECORD_BYTES_MIN || n[ROOM] < 0) {
        result = none();
        goto done;
    }
    const int magic = (int)n[MAGIC], is_stamped = (n[ATTRIBUTES] & LOG_APPEND_TIME) != 0;
    const int64_t room = n[ROOM] < PART_BYTES_MAX ? n[ROOM] : PART_BYTES_MAX;
    /* A message is no larger than its record and this. */
    int64_t most = data.len - n[POSITION] + n[RECORDS] * (int64_t)(overhead(magic) - RECORD_BYTES_MIN);
    if (most > PART_BYTES_MAX) most = PART_BYTES_MAX;
    if (!(part = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)most))) goto done;
    uint8_t *start = (uint8_t *)PyByteArray_AsString(part), *out = start;
    const uint8_t *first = data.buf, *at = first + n[POSITION], *end = first + data.len;
    int64_t taken = 0, before = n[BEFORE], last = -1, max_timestamp = -1, with_headers = 0;
    int is_unusual = 0;
    for (; taken < n[RECORDS]; taken++) {
        struct record record;
        const uint8_t *next = at;
        int64_t delta, headers;
        is_unusual = !read_stored(&next, end, n[BASE_TIMESTAMP], &record, &delta, &headers) || delta <= before
                     || delta > n[LAST];
        if (is_unusual) break;
        if (delta >= n[FIRST]) {
            int64_t size = (int64_t)overhead(magic) + (record.key_bytes > 0 ? record.key_bytes : 0)
                           + (record.value_bytes > 0 ? record.value_bytes : 0);
            int is_due = n[AT_LEAST_ONE] && out == start;
            is_unusual = is_due && size > most;
            if (size > (is_due ? most : room - (out - start))) break;
            if (is_stamped) record.timestamp = n[APPEND_TIME];
            uint8_t *message = out;
            out = put_message(out, &record, magic, (int64_t)((uint64_t)n[SHIFT] + (uint64_t)delta));
            if (magic && n[ATTRIBUTES]) {
                uint8_t *checked = message + OFFSET_AND_SIZE_BYTES + CRC_BYTES;
                checked[1] = (uint8_t)n[ATTRIBUTES];
                put32(checked - CRC_BYTES, checksum(&crc32_of_gzip, 0, checked, (size_t)(out - checked)));
            }
            if (record.timestamp > max_timestamp) max_timestamp = record.timestamp;
            if (headers) with_headers++;
            last = delta;
        }
        before = delta;
        at = next;
    }
    if (is_unusual && !taken) {
        result = none();
        goto done;
    }
    if (PyByteArray_Resize(part, out - start) || !(result = PyTuple_New(7))) goto done;
    PyTuple_SetItem(result, 0, part);
    part = NULL;
    PyTuple_SetItem(result, 1, PyLong_FromLongLong(at - first));
    PyTuple_SetItem(result, 2, PyLong_FromLongLong(taken));
    PyTuple_SetItem(result, 3, PyLong_FromLongLong(before));
    PyTuple_SetItem(result, 4, PyLong_FromLongLong(last));
    PyTuple_SetItem(result, 5, PyLong_FromLongLong(max_timestamp));
    PyTuple_SetItem(result, 6, PyLong_FromLongLong(with_headers));
done:
    PyBuffer_Release(&data);
    if (part) Py_DecRef(part);
    return result;
}

static PyMethodDef LOWER_METHODS[] = {{"lower_part", (void *)lower_part, METH_FASTCALL, NULL}, {NULL, NULL, 0, NULL}};
static PyModuleDef LOWER_MODULE = {.reference_count = 1, .name = "lower", .size = -1, .methods = LOWER_METHODS};

API PyObject *PyInit_lower(void);
PyObject *PyInit_lower(void) {
    choose_checksum();
    PyObject *module = PyModule_Create2(&LOWER_MODULE, ABI_VERSION);
    if (module && PyModule_AddIntConstant(module, "REVISION", LOWER_REVISION)) {
        Py_DecRef(module);
        return NULL;
    }
    return module;
}
