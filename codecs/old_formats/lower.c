/* Records of format v2 as messages of the formats v0 and v1: what consumers get that read nothing newer.

   Numbers, checksums, messages and what is used of CPython are those of the kernel, whose source is included: so there
   is one text of each. Its functions for Python stay in the library, where nothing calls them.

   As there, the Python beside it (lowering.py) is the reference: a function here makes the same bytes, or leaves to it
   whatever is unusual or wrong, and no call takes more than a few milliseconds. */
#include "../kernel/kernel.c"

enum {
    LOWER_REVISION = 1, /* of what is below; codecs/old_formats/__init__.py takes no other */
    LOG_APPEND_TIME = 8, /* in a message's attributes */
    HEADER_BYTES_MIN = 2, /* of a record's header: two lengths */
    LENGTH_AT = 8,        /* in a batch */
    MAGIC_AT = 16,
    CRC_AT = 17,
    MAX_TIMESTAMP_AT = 35,
    TRANSACTIONAL = 0x10, /* in a batch's attributes */
    CONTROL = 0x20,
    BATCHES_BYTES_MAX = 4 << 20, /* that one call reads */
};

static int64_t big64(const uint8_t *p) {
    return (int64_t)((uint64_t)(uint32_t)big32(p) << 32 | (uint32_t)big32(p + 4));
}

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

/* As put_message, with the attributes of format v1. */
static uint8_t *put_lowered(uint8_t *out, const struct record *record, int magic, int attributes, int64_t offset) {
    uint8_t *end = put_message(out, record, magic, offset), *checked = out + OFFSET_AND_SIZE_BYTES + CRC_BYTES;
    if (magic && attributes) {
        checked[1] = (uint8_t)attributes;
        put32(checked - CRC_BYTES, checksum(&crc32_of_gzip, 0, checked, (size_t)(end - checked)));
    }
    return end;
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
            int64_t offset = (int64_t)((uint64_t)n[SHIFT] + (uint64_t)delta);
            out = put_lowered(out, &record, magic, (int)n[ATTRIBUTES], offset);
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

/* What `lower_batches` has made so far. */
struct lowered {
    uint8_t *out;
    int64_t next_offset, last_offset, with_headers;
};

/* Does an uncompressed batch of records begin here? */
static int is_plain(const uint8_t *head, const uint8_t *end) {
    return end - head > BATCH_OVERHEAD_BYTES && head[MAGIC_AT] == 2
           && !(head[ATTRIBUTES_AT + 1] & (CODEC_MASK | CONTROL));
}

/* One whole batch, if it is plain and all of it fits into `room`; returns where it ends. NULL: it is left to lower_part,
   and nothing has changed. */
static const uint8_t *lower_batch(struct lowered *made, const uint8_t *head, const uint8_t *end, int magic,
                                  int64_t fetch_offset, int is_any_aborted, int64_t room) {
    if (!is_plain(head, end)) return NULL;
    const int attributes = head[ATTRIBUTES_AT + 1];
    const int64_t base_offset = big64(head), last = big32(head + LAST_OFFSET_DELTA_AT);
    const int64_t count = big32(head + RECORD_COUNT_AT), left = big32(head + LENGTH_AT) + OFFSET_AND_SIZE_BYTES
                                                                - (int64_t)BATCH_OVERHEAD_BYTES;
    if (left <= 0 || left > end - head - BATCH_OVERHEAD_BYTES) return NULL;
    if (is_any_aborted && attributes & TRANSACTIONAL) return NULL;
    if (count <= 0 || count > left / RECORD_BYTES_MIN || count > last + 1) return NULL;
    if (left + count * (int64_t)(overhead(magic) - RECORD_BYTES_MIN) > room) return NULL;
    if (base_offset < 0 || base_offset >= INT64_MAX - last || base_offset + last < fetch_offset) return NULL;
    const uint8_t *at = head + BATCH_OVERHEAD_BYTES, *behind = at + left, *covered = head + ATTRIBUTES_AT;
    if (checksum(&crc32_castagnoli, 0, covered, (size_t)(behind - covered)) != (uint32_t)big32(head + CRC_AT)) return NULL;
    const int stamp = attributes & LOG_APPEND_TIME;
    const int64_t base_timestamp = big64(head + BASE_TIMESTAMP_AT);
    struct lowered more = *made;
    int64_t before = -1;
    for (int64_t i = 0; i < count; i++) {
        struct record record;
        int64_t delta, headers;
        if (!read_stored(&at, behind, base_timestamp, &record, &delta, &headers) || delta <= before || delta > last)
            return NULL;
        before = delta;
        if (base_offset + delta < fetch_offset) continue;
        if (stamp) record.timestamp = big64(head + MAX_TIMESTAMP_AT);
        more.out = put_lowered(more.out, &record, magic, stamp, base_offset + delta);
        more.last_offset = base_offset + delta;
        if (headers) more.with_headers++;
    }
    if (at != behind) return NULL;
    more.next_offset = base_offset + last + 1;
    *made = more;
    return behind;
}

/* lower_batches(data, magic, position, fetch_offset, is_any_aborted, room): the next whole batches as plain messages */
static PyObject *lower_batches(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    Py_buffer data;
    int64_t magic, position, fetch_offset, is_any_aborted, room;
    PyObject *messages = NULL, *result = NULL;
    (void)module;
    if (count != 6) return wrong_arguments();
    if (!number(args[1], &magic) || !number(args[2], &position) || !number(args[3], &fetch_offset)) return NULL;
    if (!number(args[4], &is_any_aborted) || !number(args[5], &room) || !bytes_of(args[0], &data)) return NULL;
    if (room > PART_BYTES_MAX) room = PART_BYTES_MAX;
    const uint8_t *first = data.buf, *end = first + data.len, *behind;
    if (magic < 0 || magic > 1 || position < 0 || position > data.len || room <= 0 || !is_plain(first + position, end)) {
        result = none();
        goto done;
    }
    const uint8_t *at = first + position;
    if (!(messages = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)room))) goto done;
    uint8_t *start = (uint8_t *)PyByteArray_AsString(messages);
    struct lowered made = {.out = start, .next_offset = -1, .last_offset = -1};
    while (at - first - position < BATCHES_BYTES_MAX
           && (behind = lower_batch(&made, at, end, (int)magic, fetch_offset, is_any_aborted != 0,
                                    room - (made.out - start))))
        at = behind;
    if (at == first + position) {
        result = none();
        goto done;
    }
    if (PyByteArray_Resize(messages, made.out - start) || !(result = PyTuple_New(5))) goto done;
    PyTuple_SetItem(result, 0, messages);
    messages = NULL;
    PyTuple_SetItem(result, 1, PyLong_FromLongLong(at - first));
    PyTuple_SetItem(result, 2, PyLong_FromLongLong(made.next_offset));
    PyTuple_SetItem(result, 3, PyLong_FromLongLong(made.last_offset));
    PyTuple_SetItem(result, 4, PyLong_FromLongLong(made.with_headers));
done:
    PyBuffer_Release(&data);
    if (messages) Py_DecRef(messages);
    return result;
}

static PyMethodDef LOWER_METHODS[] = {
    {"lower_part", (void *)lower_part, METH_FASTCALL, NULL},
    {"lower_batches", (void *)lower_batches, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};
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
