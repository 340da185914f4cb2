/* Messages of the formats v0 and v1 as records of format v2: what producers send that write nothing newer.

   As lower.c, it includes the kernel's source for numbers and checksums, and the Python beside it (raising.py) is the
   reference: what is made here is made there with the same bytes, and whatever is unusual or wrong is left to it. */
#include "../kernel/kernel.c"

enum {
    RAISE_REVISION = 1, /* of what is below; codecs/old_formats/__init__.py takes no other */
    SIZE_AT = 8,        /* in a message */
    CRC_AT = 12,
    CHECKED_AT = 16, /* the checksum covers all from the magic on */
    ATTRIBUTES_AFTER_MAGIC = 17,
    FIELDS_AT = 18,
    MESSAGE_BYTES_MIN = 26,
    RECORD_OVERHEAD_MAX = 32, /* length, attributes, two deltas, two lengths, a header count */
};

static int64_t big64(const uint8_t *p) {
    return (int64_t)((uint64_t)(uint32_t)big32(p) << 32 | (uint32_t)big32(p + 4));
}

static inline uint64_t zigzag(int64_t value) { return (uint64_t)value << 1 ^ (uint64_t)(value >> 63); }

static inline int varlong_bytes(int64_t value) {
    int bytes = 1;
    for (uint64_t bits = zigzag(value); bits >= 0x80; bits >>= 7) bytes++;
    return bytes;
}

static inline uint8_t *put_varlong(uint8_t *out, int64_t value) {
    uint64_t bits = zigzag(value);
    for (; bits >= 0x80; bits >>= 7) *out++ = (uint8_t)(bits | 0x80);
    *out++ = (uint8_t)bits;
    return out;
}

static inline int sized_field(const uint8_t **at, const uint8_t *end, const uint8_t **data, int64_t *bytes) {
    if (end - *at < 4) return 0;
    *bytes = big32(*at);
    *at += 4;
    if (*bytes < -1 || *bytes > end - *at) return 0;
    *data = *at;
    if (*bytes > 0) *at += *bytes;
    return 1;
}

/* The next message, and `at` after it; 0 if it is not whole, wrong, a wrapper, or of another format. `magic`: -1 is any
   of the two. */
static inline int read_message(const uint8_t **at, const uint8_t *end, int64_t magic, int64_t missing_timestamp,
                               struct record *record) {
    const uint8_t *head = *at;
    if (end - head < MESSAGE_BYTES_MIN) return 0;
    const int64_t size = (int64_t)big32(head + SIZE_AT) + OFFSET_AND_SIZE_BYTES;
    const int own = head[CHECKED_AT];
    if (size < MESSAGE_BYTES_MIN || size > end - head || own > 1 || (magic >= 0 && own != magic)) return 0;
    if (size > PART_BYTES_MAX) return 0; /* its checksum alone would take long */
    if (head[ATTRIBUTES_AFTER_MAGIC] & CODEC_MASK) return 0;
    const uint8_t *p = head + FIELDS_AT, *behind = head + size;
    record->timestamp = missing_timestamp;
    if (own) {
        record->timestamp = big64(p);
        p += 8;
    }
    if (!sized_field(&p, behind, &record->key, &record->key_bytes)) return 0;
    if (!sized_field(&p, behind, &record->value, &record->value_bytes) || p != behind) return 0;
    if (checksum(&crc32_of_gzip, 0, head + CHECKED_AT, (size_t)(size - CHECKED_AT)) != (uint32_t)big32(head + CRC_AT))
        return 0;
    *at = behind;
    return 1;
}

static uint8_t *put_nullable(uint8_t *out, const uint8_t *data, int64_t bytes) {
    out = put_varlong(out, bytes);
    if (bytes <= 0) return out;
    memcpy(out, data, (size_t)bytes);
    return out + bytes;
}

/* What raise_part is given after the data. */
enum {
    POSITION,          /* of the next message */
    MAGIC,             /* that all have to be of; -1: any */
    MISSING_TIMESTAMP, /* of messages of format v0 */
    COUNT,             /* records that the batch has already */
    BASE_TIMESTAMP,    /* of the batch, if it has any */
    MAX_TIMESTAMP,
    ROOM, /* bytes of records that the batch takes, unless it has none yet */
    NUMBERS
};

/* raise_part(data, numbers ...): the next messages as records, as many as there is room for, and a megabyte */
static PyObject *raise_part(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    Py_buffer data;
    int64_t n[NUMBERS];
    PyObject *part = NULL, *result = NULL;
    (void)module;
    if (count != NUMBERS + 1) return wrong_arguments();
    for (int i = 0; i < NUMBERS; i++)
        if (!number(args[i + 1], &n[i])) return NULL;
    if (!bytes_of(args[0], &data)) return NULL;
    if (n[POSITION] < 0 || n[POSITION] > data.len || n[COUNT] < 0 || n[COUNT] > INT32_MAX) {
        result = none();
        goto done;
    }
    const uint8_t *first = data.buf, *at = first + n[POSITION], *end = first + data.len;
    /* No record has more bytes than its message and the difference of the two overheads. */
    int64_t most = (end - at) + (end - at) / MESSAGE_BYTES_MIN * (RECORD_OVERHEAD_MAX - MESSAGE_BYTES_MIN);
    if (most > PART_BYTES_MAX) most = PART_BYTES_MAX;
    if (!(part = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)most))) goto done;
    uint8_t *start = (uint8_t *)PyByteArray_AsString(part), *out = start;
    int64_t records = n[COUNT], base = n[BASE_TIMESTAMP], highest = n[MAX_TIMESTAMP];
    while (records < INT32_MAX) {
        struct record record;
        const uint8_t *next = at;
        if (!read_message(&next, end, n[MAGIC], n[MISSING_TIMESTAMP], &record)) break;
        const int64_t from = records ? base : record.timestamp;
        const int64_t delta = (int64_t)((uint64_t)record.timestamp - (uint64_t)from); /* wraps, as in Java */
        const int64_t key_bytes = record.key_bytes > 0 ? record.key_bytes : 0;
        const int64_t value_bytes = record.value_bytes > 0 ? record.value_bytes : 0;
        const int64_t length = 1 + varlong_bytes(delta) + varlong_bytes(records) + varlong_bytes(record.key_bytes)
                               + key_bytes + varlong_bytes(record.value_bytes) + value_bytes + 1;
        const int64_t size = varlong_bytes(length) + length, made = out - start;
        if (size > most - made || (records && size > n[ROOM] - made)) break;
        out = put_varlong(out, length);
        *out++ = 0; /* attributes */
        out = put_varlong(out, delta);
        out = put_varlong(out, records);
        out = put_nullable(out, record.key, record.key_bytes);
        out = put_nullable(out, record.value, record.value_bytes);
        *out++ = 0; /* headers */
        if (!records) base = highest = record.timestamp;
        else if (record.timestamp > highest) highest = record.timestamp;
        records++;
        at = next;
    }
    if (records == n[COUNT]) {
        result = none();
        goto done;
    }
    if (PyByteArray_Resize(part, out - start) || !(result = PyTuple_New(5))) goto done;
    PyTuple_SetItem(result, 0, part);
    part = NULL;
    PyTuple_SetItem(result, 1, PyLong_FromLongLong(at - first));
    PyTuple_SetItem(result, 2, PyLong_FromLongLong(records));
    PyTuple_SetItem(result, 3, PyLong_FromLongLong(base));
    PyTuple_SetItem(result, 4, PyLong_FromLongLong(highest));
done:
    PyBuffer_Release(&data);
    if (part) Py_DecRef(part);
    return result;
}

static PyMethodDef RAISE_METHODS[] = {
    {"raise_part", (void *)raise_part, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};
static PyModuleDef RAISE_MODULE = {.reference_count = 1, .name = "raise_set", .size = -1, .methods = RAISE_METHODS};

API PyObject *PyInit_raise_set(void);
PyObject *PyInit_raise_set(void) {
    choose_checksum();
    PyObject *module = PyModule_Create2(&RAISE_MODULE, ABI_VERSION);
    if (module && PyModule_AddIntConstant(module, "REVISION", RAISE_REVISION)) {
        Py_DecRef(module);
        return NULL;
    }
    return module;
}
