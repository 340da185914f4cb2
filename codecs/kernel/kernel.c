/* What codecs/ does with every byte of a produce, compiled: checksums, the records of batches as messages of the old
   formats, the wrapper around them, digests.

   The Python beside it is the reference: a function here makes the same bytes, or returns None for whatever is unusual
   or wrong. Then the Python does the work, or raises the error. So nothing is refused here, and no error is worded
   twice.

   Every length is compared with the bytes that are left before it is followed; numbers are read byte by byte or with
   memcpy, so neither alignment nor byte order matters. Sizes are limited (OUTPUT_BYTES_MAX), but for crc32c, so that
   no call takes more than about ten milliseconds.

   Python.h is not needed: what is used of CPython is declared below, all of it of the stable ABI of 3.11, so one library
   serves that version and later ones. */
#include <stdint.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------- CPython 3.11+ */
typedef struct _object PyObject;
typedef intptr_t Py_ssize_t;

typedef struct {
    void *buf;
    PyObject *obj;
    Py_ssize_t len, itemsize;
    int readonly, ndim;
    char *format;
    Py_ssize_t *shape, *strides, *suboffsets;
    void *internal;
} Py_buffer;

typedef struct {
    const char *name;
    void *function;
    int flags;
    const char *doc;
} PyMethodDef;

typedef struct {
    Py_ssize_t reference_count;
    void *type, *initialise;
    Py_ssize_t index;
    PyObject *copy;
    const char *name, *doc;
    Py_ssize_t size;
    PyMethodDef *methods;
    void *slots, *traverse, *clear, *free;
} PyModuleDef;

extern PyObject *PyByteArray_FromStringAndSize(const char *, Py_ssize_t);
extern char *PyByteArray_AsString(PyObject *);
extern int PyByteArray_Resize(PyObject *, Py_ssize_t);
extern PyObject *PyBytes_FromStringAndSize(const char *, Py_ssize_t);
extern char *PyBytes_AsString(PyObject *);
extern int PyObject_GetBuffer(PyObject *, Py_buffer *, int);
extern void PyBuffer_Release(Py_buffer *);
extern PyObject *PyLong_FromLongLong(long long);
extern PyObject *PyLong_FromUnsignedLong(unsigned long);
extern long long PyLong_AsLongLong(PyObject *);
extern Py_ssize_t PyTuple_Size(PyObject *);
extern PyObject *PyTuple_GetItem(PyObject *, Py_ssize_t);
extern PyObject *PyTuple_New(Py_ssize_t);
extern int PyTuple_SetItem(PyObject *, Py_ssize_t, PyObject *);
extern PyObject *PyErr_Occurred(void);
extern void PyErr_SetString(PyObject *, const char *);
extern PyObject *PyModule_Create2(PyModuleDef *, int);
extern int PyModule_AddIntConstant(PyObject *, const char *, long);
extern void Py_IncRef(PyObject *);
extern void Py_DecRef(PyObject *);
extern PyObject *PyExc_TypeError;
extern char _Py_NoneStruct[]; /* its address is None */

enum { METH_FASTCALL = 0x80, ABI_VERSION = 3, WRITABLE = 1 };

#define API __attribute__((visibility("default")))
#define NONE ((PyObject *)_Py_NoneStruct)

static PyObject *none(void) {
    Py_IncRef(NONE);
    return NONE;
}

static PyObject *wrong_arguments(void) {
    PyErr_SetString(PyExc_TypeError, "kernel: wrong number of arguments");
    return NULL;
}

/* ------------------------------------------------------------------------------------------------------- limits */
enum {
    REVISION = 10,              /* of what is below; codecs/kernel/__init__.py takes no other */
    OUTPUT_BYTES_MAX = 4 << 20, /* of one call */
    BATCHES_MAX = 5,            /* that are stored together: what brokers remember of a producer */
    PART_BYTES_MAX = 1 << 20,   /* that are made of a batch in one call where it takes several */
    RECORD_BYTES_MIN = 7,       /* length, attributes, two deltas, two null lengths, a header count: one byte each */
    KEY_BYTES_MAX = 1 << 16,    /* of a wrapper: a marker has 99 at most */
    BATCH_OVERHEAD_BYTES = 61,
    BATCH_CRC_AT = 17,
    ATTRIBUTES_AT = 21,
    CODEC_MASK = 7,
    GZIP = 1,
    LAST_OFFSET_DELTA_AT = 23,
    BASE_TIMESTAMP_AT = 27,
    PRODUCER_ID_AT = 43, /* epoch, base sequence and record count are behind it: what a marker says of a batch */
    RECORD_COUNT_AT = 57,
    HEADER_MARKER_BYTES = 6,
    RECORD_HEADERS_MAX = 10000,
    STORED_BLOCK_BYTES_MAX = 0xffff,
    GZIP_START_BYTES = 10,
    GZIP_END_BYTES = 8,
    STORED_BLOCK_START_BYTES = 5,
    MARKER_START_BYTES = 5,
    IDENTITY_BYTES = 18,
    DIGEST_BYTES = 8,
    OFFSET_AND_SIZE_BYTES = 12,
    LENGTHS_BYTES = 8, /* of key and value, at the end of a message */
    CRC_BYTES = 4,
    FOLDED_BYTES_MIN = 64,
};

/* ------------------------------------------------------------------------------------------------------- numbers */
static uint64_t little64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    return v;
}

static void put_little(uint8_t *p, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) p[i] = (uint8_t)(value >> 8 * i);
}

static void put32(uint8_t *p, uint32_t v) {
#if __BYTE_ORDER__ != __ORDER_BIG_ENDIAN__
    v = __builtin_bswap32(v);
#endif
    memcpy(p, &v, 4);
}

static int32_t big32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, 4);
#if __BYTE_ORDER__ != __ORDER_BIG_ENDIAN__
    v = __builtin_bswap32(v);
#endif
    return (int32_t)v;
}

static void put64(uint8_t *p, uint64_t v) {
    put32(p, (uint32_t)(v >> 32));
    put32(p + 4, (uint32_t)v);
}

/* A zig-zag number of at most 64 bits. 0: it does not end before `end`, or has more bits. */
static inline int varlong(const uint8_t **at, const uint8_t *end, int64_t *value) {
    const uint8_t *p = *at;
    uint64_t bits = 0;
    for (int shift = 0; shift < 70 && p < end; shift += 7) {
        uint8_t byte = *p++;
        if (shift == 63 && byte > 1) return 0;
        bits |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *value = (int64_t)(bits >> 1) ^ -(int64_t)(bits & 1);
            *at = p;
            return 1;
        }
    }
    return 0;
}

/* ----------------------------------------------------------------------------------------------------- checksums */
/* Both CRCs, bit-reflected. Tables for eight bytes at a time; where the processor multiplies without carry, 64 bytes are
   folded into the next 64 ("Fast CRC Computation Using PCLMULQDQ", Gopal et al., 2009), and the tables do what is left. */
struct crc {
    uint32_t table[8][256];
    uint64_t fold[6]; /* powers of x modulo the polynomial, see EXPONENTS */
};

/* The distance of a fold in bits, plus and minus 32: for folds of 16, 64 and 256 bytes. */
static const int EXPONENTS[6] = {160, 96, 544, 480, 2080, 2016};

static struct crc crc32_of_gzip, crc32_castagnoli;
static uint32_t (*fastest)(const struct crc *, uint32_t, const uint8_t *, size_t); /* for FOLDED_BYTES_MIN or more */

static uint64_t power_of_x(uint32_t polynomial, int exponent) {
    uint32_t r = 1, reflected = 0;
    while (exponent--) r = r << 1 ^ (r >> 31 ? polynomial : 0);
    for (int i = 0; i < 32; i++) reflected |= (r >> i & 1) << (31 - i);
    return (uint64_t)reflected << 1;
}

static void prepare(struct crc *crc, uint32_t polynomial) {
    uint32_t reflected = 0;
    for (int i = 0; i < 32; i++) reflected |= (polynomial >> i & 1) << (31 - i);
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++) c = c & 1 ? reflected ^ c >> 1 : c >> 1;
        crc->table[0][i] = c;
    }
    for (int i = 0; i < 256; i++)
        for (int k = 1; k < 8; k++)
            crc->table[k][i] = crc->table[0][crc->table[k - 1][i] & 0xff] ^ crc->table[k - 1][i] >> 8;
    for (int i = 0; i < 6; i++) crc->fold[i] = power_of_x(polynomial, EXPONENTS[i]);
}

static uint32_t by_table(const struct crc *crc, uint32_t c, const uint8_t *p, size_t size) {
    const uint32_t(*t)[256] = crc->table;
    for (; size >= 8; p += 8, size -= 8) {
        uint64_t v = little64(p) ^ c;
        c = t[7][v & 0xff] ^ t[6][v >> 8 & 0xff] ^ t[5][v >> 16 & 0xff] ^ t[4][v >> 24 & 0xff] ^ t[3][v >> 32 & 0xff]
            ^ t[2][v >> 40 & 0xff] ^ t[1][v >> 48 & 0xff] ^ t[0][v >> 56];
    }
    while (size--) c = t[0][(c ^ *p++) & 0xff] ^ c >> 8;
    return c;
}

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

#define FOLDING __attribute__((target("pclmul,sse4.1")))

FOLDING static inline __m128i folded(__m128i x, __m128i k, __m128i next) {
    return _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x00), _mm_clmulepi64_si128(x, k, 0x11)), next);
}

FOLDING static inline __m128i load(const uint8_t *p) { return _mm_loadu_si128((const __m128i *)(const void *)p); }

/* `size` is FOLDED_BYTES_MIN or more. */
FOLDING static uint32_t by_folding(const struct crc *crc, uint32_t c, const uint8_t *p, size_t size) {
    __m128i k = load((const uint8_t *)(crc->fold + 2));
    __m128i a = _mm_xor_si128(load(p), _mm_cvtsi32_si128((int)c)), b = load(p + 16);
    __m128i d = load(p + 32), e = load(p + 48);
    for (p += 64, size -= 64; size >= 64; p += 64, size -= 64) {
        a = folded(a, k, load(p));
        b = folded(b, k, load(p + 16));
        d = folded(d, k, load(p + 32));
        e = folded(e, k, load(p + 48));
    }
    k = load((const uint8_t *)crc->fold);
    a = folded(folded(folded(a, k, b), k, d), k, e);
    for (; size >= 16; p += 16, size -= 16) a = folded(a, k, load(p));
    uint8_t rest[16];
    _mm_storeu_si128((__m128i *)(void *)rest, a);
    return by_table(crc, by_table(crc, 0, rest, 16), p, size);
}

#define WIDE __attribute__((target("avx2,vpclmulqdq,pclmul,sse4.1")))

WIDE static inline __m256i wide(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)(const void *)p); }

WIDE static inline __m256i folded_wide(__m256i x, __m256i k, __m256i next) {
    return _mm256_xor_si256(
        _mm256_xor_si256(_mm256_clmulepi64_epi128(x, k, 0x00), _mm256_clmulepi64_epi128(x, k, 0x11)), next);
}

/* The same, 256 bytes into the next 256. */
WIDE static uint32_t by_wide_folding(const struct crc *crc, uint32_t c, const uint8_t *p, size_t size) {
    if (size < 1024) return by_folding(crc, c, p, size);
    __m256i k = _mm256_broadcastsi128_si256(load((const uint8_t *)(crc->fold + 4))), x[8];
    for (int i = 0; i < 8; i++) x[i] = wide(p + 32 * i);
    x[0] = _mm256_xor_si256(x[0], _mm256_zextsi128_si256(_mm_cvtsi32_si128((int)c)));
    for (p += 256, size -= 256; size >= 256; p += 256, size -= 256)
        for (int i = 0; i < 8; i++) x[i] = folded_wide(x[i], k, wide(p + 32 * i));
    uint8_t rest[256];
    for (int i = 0; i < 8; i++) _mm256_storeu_si256((__m256i *)(void *)(rest + 32 * i), x[i]);
    c = by_folding(crc, 0, rest, sizeof rest);
    return size >= FOLDED_BYTES_MIN ? by_folding(crc, c, p, size) : by_table(crc, c, p, size);
}

/* 0: tables only; 1: folds; 2: folds wide, for which the operating system has to save the wide registers. */
static int folding(void) {
    unsigned a, b, c, d, state = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 1 & 1) || !(c >> 19 & 1)) return 0; /* PCLMULQDQ, SSE4.1 */
    if (c >> 27 & 1) __asm__("xgetbv" : "=a"(state) : "c"(0) : "edx");
    if ((state & 6) != 6 || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 1;
    return 1 + ((b >> 5 & 1) && (c >> 10 & 1)); /* AVX2, VPCLMULQDQ */
}

#elif defined(__aarch64__) && defined(__linux__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#include <sys/auxv.h>

static int folding(void) { return getauxval(16) >> 7 & 1; } /* AT_HWCAP, HWCAP_CRC32 */
#define by_wide_folding by_folding

/* No folding: these processors have instructions for both. */
static uint32_t by_folding(const struct crc *crc, uint32_t c, const uint8_t *p, size_t size) {
    uint64_t v;
    if (crc == &crc32_castagnoli)
        for (; size >= 8; p += 8, size -= 8) {
            memcpy(&v, p, 8);
            __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(c) : "r"(v));
        }
    else
        for (; size >= 8; p += 8, size -= 8) {
            memcpy(&v, p, 8);
            __asm__(".arch_extension crc\n\tcrc32x %w0, %w0, %x1" : "+r"(c) : "r"(v));
        }
    return by_table(crc, c, p, size);
}

#else
static int folding(void) { return 0; }
#define by_folding by_table
#define by_wide_folding by_table
#endif

static uint32_t checksum(const struct crc *crc, uint32_t before, const uint8_t *p, size_t size) {
    return ~(size >= FOLDED_BYTES_MIN ? fastest : by_table)(crc, ~before, p, size);
}

/* A faster way is taken only if it finds what the tables find. */
static void choose_checksum(void) {
    uint8_t sample[3333];
    for (size_t i = 0; i < sizeof sample; i++) sample[i] = (uint8_t)(i * i + 7 * i);
    prepare(&crc32_of_gzip, 0x04c11db7);
    prepare(&crc32_castagnoli, 0x1edc6f41);
    int ways = folding();
    fastest = ways == 2 ? by_wide_folding : ways == 1 ? by_folding : by_table;
    if (fastest(&crc32_of_gzip, 1, sample, sizeof sample) != by_table(&crc32_of_gzip, 1, sample, sizeof sample)
        || fastest(&crc32_castagnoli, 1, sample, sizeof sample)
            != by_table(&crc32_castagnoli, 1, sample, sizeof sample))
        fastest = by_table;
}

/* ------------------------------------------------------------------------------------------------------- BLAKE2b */
/* RFC 7693, with eight bytes of output and a personalisation. */
static const uint64_t IV[8] = {
    0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
    0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179,
};
static const uint8_t SIGMA[12][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
};

struct blake {
    uint64_t h[8], total;
    uint8_t block[128];
    size_t used;
};

static inline uint64_t rotated(uint64_t x, int bits) { return x >> bits | x << (64 - bits); }

#define MIX(a, b, c, d, x, y) \
    a += b + (x), d = rotated(d ^ a, 32), c += d, b = rotated(b ^ c, 24), \
    a += b + (y), d = rotated(d ^ a, 16), c += d, b = rotated(b ^ c, 63)

static void blake_block(struct blake *s, const uint8_t *block, int is_last) {
    uint64_t m[16], v[16];
    for (int i = 0; i < 16; i++) m[i] = little64(block + 8 * i);
    for (int i = 0; i < 8; i++) v[i] = s->h[i], v[i + 8] = IV[i];
    v[12] ^= s->total;
    if (is_last) v[14] = ~v[14];
#pragma GCC unroll 12
    for (int round = 0; round < 12; round++) {
        const uint8_t *g = SIGMA[round];
        MIX(v[0], v[4], v[8], v[12], m[g[0]], m[g[1]]);
        MIX(v[1], v[5], v[9], v[13], m[g[2]], m[g[3]]);
        MIX(v[2], v[6], v[10], v[14], m[g[4]], m[g[5]]);
        MIX(v[3], v[7], v[11], v[15], m[g[6]], m[g[7]]);
        MIX(v[0], v[5], v[10], v[15], m[g[8]], m[g[9]]);
        MIX(v[1], v[6], v[11], v[12], m[g[10]], m[g[11]]);
        MIX(v[2], v[7], v[8], v[13], m[g[12]], m[g[13]]);
        MIX(v[3], v[4], v[9], v[14], m[g[14]], m[g[15]]);
    }
    for (int i = 0; i < 8; i++) s->h[i] ^= v[i] ^ v[i + 8];
}

/* `person` has eight bytes at most. */
static void blake_begin(struct blake *s, const char *person) {
    uint8_t personal[8] = {0};
    memcpy(personal, person, strlen(person));
    memcpy(s->h, IV, sizeof IV);
    s->h[0] ^= 0x01010000 ^ DIGEST_BYTES;
    s->h[6] ^= little64(personal);
    s->total = s->used = 0;
}

static void blake_add(struct blake *s, const uint8_t *p, size_t size) {
    while (size) {
        if (s->used == sizeof s->block) { /* only once there is more: the last block is hashed as such */
            s->total += sizeof s->block;
            blake_block(s, s->block, 0);
            s->used = 0;
        }
        size_t taken = sizeof s->block - s->used < size ? sizeof s->block - s->used : size;
        memcpy(s->block + s->used, p, taken);
        s->used += taken, p += taken, size -= taken;
    }
}

static void blake_end(struct blake *s, uint8_t digest[DIGEST_BYTES]) {
    s->total += s->used;
    memset(s->block + s->used, 0, sizeof s->block - s->used);
    blake_block(s, s->block, 1);
    put_little(digest, s->h[0], DIGEST_BYTES);
}

/* As marker.content_digest; a negative size is null. */
static void content_digest(const uint8_t *key, int64_t key_bytes, const uint8_t *value, int64_t value_bytes,
                           uint8_t digest[DIGEST_BYTES]) {
    struct blake s;
    uint8_t field[4];
    blake_begin(&s, "content");
    put32(field, (uint32_t)(key_bytes < 0 ? -1 : key_bytes));
    blake_add(&s, field, 4);
    if (key_bytes > 0) blake_add(&s, key, (size_t)key_bytes);
    field[0] = value_bytes >= 0;
    blake_add(&s, field, 1);
    if (value_bytes > 0) blake_add(&s, value, (size_t)value_bytes);
    blake_end(&s, digest);
}

/* ------------------------------------------------------------------------------------------------------- records */
struct record {
    int64_t timestamp, key_bytes, value_bytes; /* -1 bytes: null */
    const uint8_t *key, *value;
};

static inline int field(const uint8_t **at, const uint8_t *end, const uint8_t **data, int64_t *bytes) {
    if (!varlong(at, end, bytes) || *bytes < -1 || *bytes > end - *at) return 0;
    *data = *at;
    if (*bytes > 0) *at += *bytes;
    return 1;
}

/* The next record, and `at` behind it; 0 if it is not plain: headers, a time before the epoch, anything wrong. */
static inline int read_record(const uint8_t **at, const uint8_t *end, int64_t base_timestamp, int64_t index,
                              struct record *record) {
    int64_t length, timestamp_delta, offset_delta, headers;
    if (!varlong(at, end, &length) || length < 1 || length > end - *at) return 0;
    const uint8_t *p = *at, *behind = p + length;
    if (*p++ >= 0x80) return 0; /* attributes: unused, one byte */
    if (!varlong(&p, behind, &timestamp_delta) || !varlong(&p, behind, &offset_delta) || offset_delta != index) return 0;
    if (__builtin_add_overflow(base_timestamp, timestamp_delta, &record->timestamp)) return 0;
    if (!field(&p, behind, &record->key, &record->key_bytes)) return 0;
    if (!field(&p, behind, &record->value, &record->value_bytes)) return 0;
    if (!varlong(&p, behind, &headers) || headers != 0 || p != behind) return 0;
    *at = behind;
    return 1;
}

static uint8_t *put_field(uint8_t *out, const uint8_t *data, int64_t bytes) {
    put32(out, (uint32_t)bytes);
    if (bytes <= 0) return out + 4;
    memcpy(out + 4, data, (size_t)bytes);
    return out + 4 + bytes;
}

/* A plain message; returns where it ends. It has `overhead(magic)` bytes beside key and value. */
static uint8_t *put_message(uint8_t *out, const struct record *record, int magic, int64_t offset) {
    uint8_t *checked = out + OFFSET_AND_SIZE_BYTES + CRC_BYTES, *p = checked;
    *p++ = (uint8_t)magic;
    *p++ = 0; /* attributes */
    if (magic) {
        put64(p, (uint64_t)record->timestamp);
        p += 8;
    }
    p = put_field(p, record->key, record->key_bytes);
    p = put_field(p, record->value, record->value_bytes);
    put64(out, (uint64_t)offset);
    put32(out + 8, (uint32_t)(p - out - OFFSET_AND_SIZE_BYTES));
    put32(out + OFFSET_AND_SIZE_BYTES, checksum(&crc32_of_gzip, 0, checked, (size_t)(p - checked)));
    return p;
}

static size_t overhead(int magic) { return magic ? 34 : 26; }

/* ------------------------------------------------------------------------------------------- what Python calls */
/* The contiguous bytes of an object; 0 with an error set if it has none. */
static int bytes_of(PyObject *object, Py_buffer *view) { return !PyObject_GetBuffer(object, view, 0); }

static int number(PyObject *object, int64_t *value) {
    *value = PyLong_AsLongLong(object);
    return *value != -1 || !PyErr_Occurred();
}

static PyObject *crc32c(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    Py_buffer data;
    int64_t start;
    (void)module;
    if (count != 2) return wrong_arguments();
    if (!number(args[1], &start) || !bytes_of(args[0], &data)) return NULL;
    size_t skipped = start < 0 ? 0 : start > data.len ? (size_t)data.len : (size_t)start;
    uint32_t crc = checksum(&crc32_castagnoli, 0, (const uint8_t *)data.buf + skipped, (size_t)data.len - skipped);
    PyBuffer_Release(&data);
    return PyLong_FromUnsignedLong(crc);
}

/* What `convert` has made so far. */
struct output {
    uint8_t *at;
    int64_t records, max_timestamp;
    uint8_t content[DIGEST_BYTES];
};

static void put_one(struct output *out, const struct record *record, int magic) {
    if (record->timestamp > out->max_timestamp) out->max_timestamp = record->timestamp;
    if (!out->records)
        content_digest(record->key, record->key_bytes, record->value, record->value_bytes, out->content);
    out->at = put_message(out->at, record, magic, out->records++);
}

static int put_records(struct output *out, const uint8_t *at, const uint8_t *end, int64_t base_timestamp, int64_t count,
                       int magic) {
    struct record record;
    for (int64_t index = 0; index < count; index++) {
        if (!read_record(&at, end, base_timestamp, index, &record)) return 0;
        put_one(out, &record, magic);
    }
    return at == end;
}

/* Both checksums of what is added, of small pieces together: of 4 KB they take a third of the time per byte. */
struct digest {
    uint32_t crc[2];
    size_t used;
    uint8_t block[4096];
};

static void digest_bytes(struct digest *s, const uint8_t *p, size_t size) {
    s->crc[0] = checksum(&crc32_castagnoli, s->crc[0], p, size);
    s->crc[1] = checksum(&crc32_of_gzip, s->crc[1], p, size);
}

static void digest_flush(struct digest *s) {
    digest_bytes(s, s->block, s->used);
    s->used = 0;
}

static void digest_add(struct digest *s, const uint8_t *p, size_t size) {
    if (size > sizeof s->block - s->used) digest_flush(s);
    if (size > sizeof s->block) {
        digest_bytes(s, p, size);
        return;
    }
    memcpy(s->block + s->used, p, size);
    s->used += size;
}

/* Goes on with the digest of keys and values (batch_digest.py), of `count` messages; returns how many, and puts `at` behind
   them: all but those behind `most` bytes, or -1 if the next one is no plain and whole one. */
static int64_t digest_of_messages(const uint8_t **at, const uint8_t *end, int64_t count, int64_t most, uint32_t crc[2]) {
    struct digest s;
    s.crc[0] = crc[0], s.crc[1] = crc[1], s.used = 0, s.block[0] = 0;
    const uint8_t *p = *at, *stop = end - p < most ? end : p + most;
    int64_t done = 0;
    for (; done < count; done++) {
        if (end - p < OFFSET_AND_SIZE_BYTES + CRC_BYTES + 1) break;
        int64_t size = OFFSET_AND_SIZE_BYTES + (int64_t)big32(p + 8), magic = p[OFFSET_AND_SIZE_BYTES + CRC_BYTES];
        if (magic > 1 || size < (int64_t)overhead((int)magic) || size > stop - p) break;
        const uint8_t *fields = p + overhead((int)magic) - LENGTHS_BYTES;
        p += size;
        digest_add(&s, fields, (size_t)(p - fields));
    }
    digest_flush(&s);
    crc[0] = s.crc[0], crc[1] = s.crc[1];
    *at = p;
    return done ? done : -1;
}

/* The key and the value of the next record, and `at` behind it; 0 if it is not well-formed, or has many headers. */
static inline int read_fields(const uint8_t **at, const uint8_t *end, int64_t index, struct record *record) {
    int64_t length, number, headers;
    const uint8_t *ignored;
    if (!varlong(at, end, &length) || length < 1 || length > end - *at) return 0;
    const uint8_t *p = *at, *behind = p + length;
    if (*p++ >= 0x80) return 0; /* attributes: unused, one byte */
    if (!varlong(&p, behind, &number) || !varlong(&p, behind, &number) || number != index) return 0;
    if (!field(&p, behind, &record->key, &record->key_bytes)) return 0;
    if (!field(&p, behind, &record->value, &record->value_bytes)) return 0;
    if (!varlong(&p, behind, &headers) || headers < 0 || headers > RECORD_HEADERS_MAX) return 0;
    for (int64_t i = 0; i < 2 * headers; i++)
        if (!field(&p, behind, &ignored, &number) || (number < 0 && !(i & 1))) return 0; /* a name is not null */
    if (p != behind) return 0;
    *at = behind;
    return 1;
}

static void digest_field(struct digest *s, const uint8_t *data, int64_t bytes) {
    uint8_t size[4];
    put32(size, (uint32_t)bytes);
    digest_add(s, size, sizeof size);
    if (bytes > 0) digest_add(s, data, (size_t)bytes);
}

static void put_digest(uint8_t *p, const uint32_t crc[2]) {
    put32(p, crc[0]);
    put32(p + 4, crc[1]);
}

/* The records of up to BATCHES_MAX whole batches as messages, in a bytearray; None if anything is unusual, NULL with an
   error set if something is no buffer. `identities`: gets what the marker says of each batch, unless it is NULL;
   `digests` then gets the digest of each. */
static PyObject *messages_of(PyObject *const *args, Py_ssize_t count, int64_t magic, int64_t room, struct output *out,
                             uint8_t *identities, uint8_t *digests) {
    Py_buffer data[BATCHES_MAX];
    int64_t records[BATCHES_MAX];
    size_t bytes = 0;
    int batches = 0, is_usual = 1;
    PyObject *message_set = NULL;
    if (magic < 0 || magic > 1 || count > BATCHES_MAX) return none();
    for (PyObject *const *arg = args; arg < args + count; arg++) {
        Py_buffer *batch = &data[batches];
        if (!bytes_of(*arg, batch)) goto done;
        const uint8_t *head = batch->buf;
        Py_ssize_t left = batch->len - BATCH_OVERHEAD_BYTES;
        is_usual = is_usual && left > 0 && left <= OUTPUT_BYTES_MAX && !(head[ATTRIBUTES_AT + 1] & CODEC_MASK);
        if (is_usual) {
            records[batches] = big32(head + RECORD_COUNT_AT);
            is_usual = records[batches] > 0 && records[batches] <= left / RECORD_BYTES_MIN;
        }
        if (is_usual) bytes += (size_t)left + (size_t)records[batches] * (overhead((int)magic) - RECORD_BYTES_MIN);
        batches++;
    }
    if (!is_usual || bytes > OUTPUT_BYTES_MAX || room < (int64_t)bytes) {
        message_set = none();
        goto done;
    }
    /* More than enough: each number of a record has at least the one byte that is counted for it. */
    if (!(message_set = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)bytes))) goto done;
    uint8_t *start = (uint8_t *)PyByteArray_AsString(message_set);
    *out = (struct output){.at = start, .max_timestamp = -1};
    for (int i = 0; i < batches; i++) {
        const uint8_t *first = data[i].buf, *end = first + data[i].len;
        int64_t base = (int64_t)((uint64_t)(uint32_t)big32(first + BASE_TIMESTAMP_AT) << 32
                                 | (uint32_t)big32(first + BASE_TIMESTAMP_AT + 4));
        const uint8_t *begin = out->at;
        if (!put_records(out, first + BATCH_OVERHEAD_BYTES, end, base, records[i], (int)magic)) {
            Py_DecRef(message_set);
            message_set = none();
            goto done;
        }
        if (!identities) continue;
        memcpy(identities + i * IDENTITY_BYTES, first + PRODUCER_ID_AT, IDENTITY_BYTES);
        uint32_t crc[2] = {0, 0};
        digest_of_messages(&begin, out->at, records[i], OUTPUT_BYTES_MAX, crc);
        put_digest(digests + i * DIGEST_BYTES, crc);
    }
    if (PyByteArray_Resize(message_set, out->at - start)) {
        Py_DecRef(message_set);
        message_set = NULL;
    }
done:
    while (batches) PyBuffer_Release(&data[--batches]);
    return message_set;
}

/* convert(magic, room, batch, ...) of up to BATCHES_MAX whole batches */
static PyObject *convert(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    int64_t magic, room;
    struct output out;
    PyObject *result;
    (void)module;
    if (count < 3) return wrong_arguments();
    if (!number(args[0], &magic) || !number(args[1], &room)) return NULL;
    PyObject *message_set = messages_of(args + 2, count - 2, magic, room, &out, NULL, NULL);
    if (!message_set || message_set == NONE) return message_set;
    if (!(result = PyTuple_New(4))) {
        Py_DecRef(message_set);
        return NULL;
    }
    PyTuple_SetItem(result, 0, message_set);
    PyTuple_SetItem(result, 1, PyLong_FromLongLong(out.records));
    PyTuple_SetItem(result, 2, PyLong_FromLongLong(out.max_timestamp));
    PyTuple_SetItem(result, 3, PyBytes_FromStringAndSize((const char *)out.content, DIGEST_BYTES));
    return result;
}

/* convert_part(magic, offset, data, position, base_timestamp, index, record_count): what begins with the record `index`
   of a batch, as far as there is room */
static PyObject *convert_part(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    Py_buffer data;
    int64_t magic, offset, position, base_timestamp, index, records;
    PyObject *part = NULL, *result = NULL;
    (void)module;
    if (count != 7) return wrong_arguments();
    if (!number(args[0], &magic) || !number(args[1], &offset) || !number(args[3], &position)) return NULL;
    if (!number(args[4], &base_timestamp) || !number(args[5], &index) || !number(args[6], &records)) return NULL;
    if (!bytes_of(args[2], &data)) return NULL;
    if (magic < 0 || magic > 1 || offset < 0 || offset > INT32_MAX || position < 0 || position > data.len || index < 0
        || index >= records || records - index > (data.len - position) / RECORD_BYTES_MIN) {
        result = none();
        goto done;
    }
    /* A message is no larger than its record and this; its sizes are those of `data`, so nothing overflows. */
    Py_ssize_t growth = (Py_ssize_t)overhead((int)magic) - RECORD_BYTES_MIN, most = data.len - position;
    most = most + (records - index) * growth < PART_BYTES_MAX ? most + (records - index) * growth : PART_BYTES_MAX;
    if (!(part = PyByteArray_FromStringAndSize(NULL, most))) goto done;
    uint8_t *start = (uint8_t *)PyByteArray_AsString(part);
    struct output out = {.at = start, .records = offset, .max_timestamp = -1};
    struct record record;
    const uint8_t *first = data.buf, *at = first + position, *end = first + data.len;
    int64_t taken = 0;
    for (; index < records; index++, taken++) {
        const uint8_t *next = at;
        if (!read_record(&next, end, base_timestamp, index, &record)) break;
        if (next - at + growth > start + most - out.at) break; /* the next part begins with it */
        put_one(&out, &record, (int)magic);
        at = next;
    }
    if (index == records ? at != end : !taken) {
        result = none(); /* something is wrong, unusual, or too large for a part */
        goto done;
    }
    if (PyByteArray_Resize(part, out.at - start) || !(result = PyTuple_New(5))) goto done;
    PyTuple_SetItem(result, 0, part);
    part = NULL;
    PyTuple_SetItem(result, 1, PyLong_FromLongLong(at - first));
    PyTuple_SetItem(result, 2, PyLong_FromLongLong(index));
    PyTuple_SetItem(result, 3, PyLong_FromLongLong(out.max_timestamp));
    PyTuple_SetItem(result, 4, PyBytes_FromStringAndSize((const char *)out.content, DIGEST_BYTES));
done:
    PyBuffer_Release(&data);
    if (part) Py_DecRef(part);
    return result;
}

/* ---------------------------------------------------------------------------------------------------- wrappers */
static uint8_t *put_stored_gzip(uint8_t *p, const uint8_t *data, size_t bytes) {
    memcpy(p, "\x1f\x8b\x08\0\0\0\0\0\0\xff", GZIP_START_BYTES); /* deflate, no flags, no time, system unknown */
    p += GZIP_START_BYTES;
    size_t at = 0;
    do {
        size_t block = bytes - at < STORED_BLOCK_BYTES_MAX ? bytes - at : STORED_BLOCK_BYTES_MAX;
        *p = at + block == bytes; /* the last one */
        put_little(p + 1, block, 2);
        put_little(p + 3, ~(uint64_t)block, 2);
        memcpy(p + STORED_BLOCK_START_BYTES, data + at, block);
        p += STORED_BLOCK_START_BYTES + block;
        at += block;
    } while (at < bytes);
    put_little(p, checksum(&crc32_of_gzip, 0, data, bytes), 4);
    put_little(p + 4, bytes, 4);
    return p + GZIP_END_BYTES;
}

static size_t stored_gzip_bytes(size_t bytes) {
    size_t blocks = bytes ? (bytes - 1) / STORED_BLOCK_BYTES_MAX + 1 : 1;
    return GZIP_START_BYTES + blocks * STORED_BLOCK_START_BYTES + bytes + GZIP_END_BYTES;
}

/* A wrapper as a bytes object; `key_bytes` -1: it has none. */
static PyObject *wrapper_of(int magic, int codec, int is_stored, int64_t offset, int64_t timestamp, const uint8_t *key,
                            Py_ssize_t key_bytes, const uint8_t *value, size_t value_bytes) {
    size_t bytes = is_stored ? stored_gzip_bytes(value_bytes) : value_bytes;
    size_t key_size = key_bytes < 0 ? 0 : (size_t)key_bytes;
    PyObject *result = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(overhead(magic) + key_size + bytes));
    if (!result) return NULL;
    uint8_t *start = (uint8_t *)PyBytes_AsString(result), *checked = start + OFFSET_AND_SIZE_BYTES + CRC_BYTES;
    uint8_t *p = checked;
    *p++ = (uint8_t)magic;
    *p++ = (uint8_t)codec;
    if (magic) {
        put64(p, (uint64_t)timestamp);
        p += 8;
    }
    p = put_field(p, key, key_bytes);
    put32(p, (uint32_t)bytes);
    p += 4;
    if (is_stored) p = put_stored_gzip(p, value, value_bytes);
    else {
        memcpy(p, value, value_bytes);
        p += value_bytes;
    }
    put64(start, (uint64_t)offset);
    put32(start + 8, (uint32_t)(p - start - OFFSET_AND_SIZE_BYTES));
    put32(start + OFFSET_AND_SIZE_BYTES, checksum(&crc32_of_gzip, 0, checked, (size_t)(p - checked)));
    return result;
}

/* wrap(magic, codec, is_stored, offset, timestamp, key, value) */
static PyObject *wrap(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    Py_buffer key = {0}, value;
    int64_t magic, codec, is_stored, offset, timestamp;
    PyObject *result = NULL;
    (void)module;
    if (count != 7) return wrong_arguments();
    if (!number(args[0], &magic) || !number(args[1], &codec) || !number(args[2], &is_stored)) return NULL;
    if (!number(args[3], &offset) || !number(args[4], &timestamp)) return NULL;
    if (args[5] != NONE && !bytes_of(args[5], &key)) return NULL;
    if (!bytes_of(args[6], &value)) goto done;
    if (magic < 0 || magic > 1 || codec < 0 || codec > 7 || key.len > KEY_BYTES_MAX || value.len > OUTPUT_BYTES_MAX)
        result = none();
    else
        result = wrapper_of((int)magic, (int)codec, is_stored != 0, offset, timestamp, key.buf,
                            args[5] == NONE ? -1 : key.len, value.buf, (size_t)value.len);
    PyBuffer_Release(&value);
done:
    if (key.obj) PyBuffer_Release(&key);
    return result;
}

static const char MARKER_START[] = "\xa9idm\1";

/* Puts the checksum of a marker behind its identities; returns where the marker ends. */
static uint8_t *end_marker(const uint8_t *marker, uint8_t *p) {
    put32(p, checksum(&crc32_of_gzip, 0, marker, (size_t)(p - marker)));
    return p + CRC_BYTES;
}

static void marker_digest(const uint8_t *marker, size_t bytes, uint8_t digest[DIGEST_BYTES]) {
    struct blake s;
    blake_begin(&s, "marker");
    blake_add(&s, marker, bytes);
    blake_end(&s, digest);
}

/* wrap_batches(room, batch, ...): what `convert`, `encode_marker`, `wrap` and `digest_marker` make of whole batches in
   format v1, stored, with the marker of the identities that are in their headers */
static PyObject *wrap_batches(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    uint8_t marker[MARKER_START_BYTES + BATCHES_MAX * IDENTITY_BYTES + CRC_BYTES], *p = marker + MARKER_START_BYTES;
    uint8_t anchor[DIGEST_BYTES], digests[BATCHES_MAX * DIGEST_BYTES];
    int64_t room;
    struct output out;
    PyObject *result = NULL;
    (void)module;
    if (count < 2) return wrong_arguments();
    if (!number(args[0], &room)) return NULL;
    PyObject *message_set = messages_of(args + 1, count - 1, 1, room, &out, p, digests);
    if (!message_set || message_set == NONE) return message_set;
    memcpy(marker, MARKER_START, MARKER_START_BYTES);
    for (Py_ssize_t i = 1; i < count; i++, p += IDENTITY_BYTES)
        if (p[0] >> 7 || p[8] >> 7 || p[10] >> 7) { /* no producer id, epoch or base sequence */
            result = none();
            goto done;
        }
    p = end_marker(marker, p);
    marker_digest(marker, (size_t)(p - marker), anchor);
    const uint8_t *messages = (const uint8_t *)PyByteArray_AsString(message_set);
    PyObject *wrapper = wrapper_of(1, GZIP, 1, out.records - 1, out.max_timestamp, marker, p - marker, messages,
                                   (size_t)(out.at - messages));
    if (!wrapper) goto done;
    if (!(result = PyTuple_New(5))) {
        Py_DecRef(wrapper);
        goto done;
    }
    PyTuple_SetItem(result, 0, wrapper);
    PyTuple_SetItem(result, 1, PyBytes_FromStringAndSize((const char *)anchor, DIGEST_BYTES));
    PyTuple_SetItem(result, 2, PyBytes_FromStringAndSize((const char *)out.content, DIGEST_BYTES));
    PyTuple_SetItem(result, 3, PyLong_FromLongLong(out.max_timestamp));
    PyTuple_SetItem(result, 4, PyBytes_FromStringAndSize((const char *)digests, (count - 1) * DIGEST_BYTES));
done:
    Py_DecRef(message_set);
    return result;
}

/* encode_marker(identity, ...), each a tuple of four numbers */
static PyObject *encode_marker(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    uint8_t marker[MARKER_START_BYTES + BATCHES_MAX * IDENTITY_BYTES + CRC_BYTES], *p = marker + MARKER_START_BYTES;
    (void)module;
    if (count < 1 || count > BATCHES_MAX) return none();
    memcpy(marker, MARKER_START, MARKER_START_BYTES);
    for (Py_ssize_t i = 0; i < count; i++, p += IDENTITY_BYTES) {
        int64_t fields[4];
        if (PyTuple_Size(args[i]) != 4) return PyErr_Occurred() ? NULL : none();
        for (int k = 0; k < 4; k++)
            if (!number(PyTuple_GetItem(args[i], k), &fields[k])) return NULL;
        if (fields[0] < 0 || fields[1] < 0 || fields[1] > INT16_MAX || fields[2] < 0 || fields[2] > INT32_MAX
            || fields[3] < 1 || fields[3] > INT32_MAX)
            return none();
        put64(p, (uint64_t)fields[0]);
        p[8] = (uint8_t)(fields[1] >> 8);
        p[9] = (uint8_t)fields[1];
        put32(p + 10, (uint32_t)fields[2]);
        put32(p + 14, (uint32_t)fields[3]);
    }
    return PyBytes_FromStringAndSize((const char *)marker, end_marker(marker, p) - marker);
}

/* digest_content(key, value) and digest_marker(marker) */
static PyObject *digest_content(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    Py_buffer fields[2] = {{0}};
    int64_t bytes[2] = {-1, -1};
    uint8_t digest[DIGEST_BYTES];
    PyObject *result = NULL;
    (void)module;
    if (count != 2) return wrong_arguments();
    for (int i = 0; i < 2; i++) {
        if (args[i] == NONE) continue;
        if (!bytes_of(args[i], &fields[i])) goto done;
        bytes[i] = fields[i].len;
    }
    if (bytes[0] > OUTPUT_BYTES_MAX || bytes[1] > OUTPUT_BYTES_MAX) result = none();
    else {
        content_digest(fields[0].buf, bytes[0], fields[1].buf, bytes[1], digest);
        result = PyBytes_FromStringAndSize((const char *)digest, DIGEST_BYTES);
    }
done:
    for (int i = 0; i < 2; i++)
        if (fields[i].obj) PyBuffer_Release(&fields[i]);
    return result;
}

/* digest_messages(message_set, position, record_count, before): of some of them, the digest, the position behind them and
   how many they are */
static PyObject *digest_messages(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    Py_buffer data, before = {0};
    int64_t position, records, done;
    PyObject *result = NULL;
    (void)module;
    if (count != 4) return wrong_arguments();
    if (!number(args[1], &position) || !number(args[2], &records) || !bytes_of(args[0], &data)) return NULL;
    if (!bytes_of(args[3], &before)) goto done;
    result = none();
    if (position < 0 || position > data.len || before.len != DIGEST_BYTES) goto done;
    const uint8_t *old = before.buf, *start = data.buf, *at = start + position;
    uint32_t crc[2] = {(uint32_t)big32(old), (uint32_t)big32(old + 4)};
    uint8_t digest[DIGEST_BYTES];
    if ((done = digest_of_messages(&at, start + data.len, records, PART_BYTES_MAX, crc)) < 0) goto done;
    put_digest(digest, crc);
    Py_DecRef(result);
    if (!(result = PyTuple_New(3))) goto done;
    PyTuple_SetItem(result, 0, PyBytes_FromStringAndSize((const char *)digest, DIGEST_BYTES));
    PyTuple_SetItem(result, 1, PyLong_FromLongLong(at - start));
    PyTuple_SetItem(result, 2, PyLong_FromLongLong(done));
done:
    if (before.obj) PyBuffer_Release(&before);
    PyBuffer_Release(&data);
    return result;
}

/* unsnappy_part(block, position, output, filled): more elements of a block of snappy, of which the next is at `position`,
   behind the first `filled` bytes of the output, until it is full or has PART_BYTES_MAX more */
static PyObject *unsnappy_part(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    Py_buffer block, output;
    int64_t position, filled;
    PyObject *result = NULL;
    (void)module;
    if (count != 4) return wrong_arguments();
    if (!number(args[1], &position) || !number(args[3], &filled) || !bytes_of(args[0], &block)) return NULL;
    if (PyObject_GetBuffer(args[2], &output, WRITABLE)) {
        PyBuffer_Release(&block);
        return NULL;
    }
    if (position < 0 || position > block.len || filled < 0 || filled > output.len) goto refused;
    const uint8_t *first = block.buf, *at = first + position, *end = first + block.len;
    uint8_t *start = output.buf, *to = start + filled, *full = start + output.len;
    const uint8_t *stop = full - to > PART_BYTES_MAX ? to + PART_BYTES_MAX : full;
    while (at < end && to < stop) { /* each element adds one byte at least, so the loop ends */
        unsigned tag = *at++, kind = tag & 3, more = kind == 3 ? 4 : kind;
        if (!kind && tag >> 2 >= 60) more = (tag >> 2) - 59; /* bytes of the length of a long literal */
        if (end - at < (Py_ssize_t)more) goto refused;
        uint64_t said = 0, length = (tag >> 2) + 1;
        for (unsigned i = 0; i < more; i++) said |= (uint64_t)*at++ << 8 * i;
        if (!kind) {
            if (more) length = said + 1;
            if (length > (uint64_t)(end - at) || length > (uint64_t)(full - to)) goto refused;
            memcpy(to, at, length);
            at += length;
        } else { /* a copy of what is `said` bytes before; it may be longer than that, and repeats itself then */
            if (kind == 1) length = (tag >> 2 & 7) + 4, said |= (uint64_t)(tag >> 5) << 8;
            if (!said || said > (uint64_t)(to - start) || length > (uint64_t)(full - to)) goto refused;
            const uint8_t *from = to - said;
            if (said >= length) memcpy(to, from, length);
            else for (uint64_t i = 0; i < length; i++) to[i] = from[i];
        }
        to += length;
    }
    if ((result = PyTuple_New(2))) {
        PyTuple_SetItem(result, 0, PyLong_FromLongLong(at - first));
        PyTuple_SetItem(result, 1, PyLong_FromLongLong(to - start));
    }
    goto done;
refused:
    result = none();
done:
    PyBuffer_Release(&block);
    PyBuffer_Release(&output);
    return result;
}

static PyObject *digest_marker(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    Py_buffer marker;
    uint8_t digest[DIGEST_BYTES];
    (void)module;
    if (count != 1) return wrong_arguments();
    if (!bytes_of(args[0], &marker)) return NULL;
    int is_usual = marker.len <= KEY_BYTES_MAX;
    if (is_usual) marker_digest(marker.buf, (size_t)marker.len, digest);
    PyBuffer_Release(&marker);
    return is_usual ? PyBytes_FromStringAndSize((const char *)digest, DIGEST_BYTES) : none();
}

static void blake_of(const char *person, const uint8_t *data, size_t bytes, uint8_t digest[DIGEST_BYTES]) {
    struct blake s;
    blake_begin(&s, person);
    blake_add(&s, data, bytes);
    blake_end(&s, digest);
}

/* Take the digest of the records of a whole, uncompressed batch of format v2, and of its first record's content. */
static int digest_records(const Py_buffer *batch, struct digest *s, uint8_t content[DIGEST_BYTES]) {
    const uint8_t *start = batch->buf, *at = start + BATCH_OVERHEAD_BYTES, *end = start + batch->len;
    if (batch->len < BATCH_OVERHEAD_BYTES || batch->len > OUTPUT_BYTES_MAX || start[ATTRIBUTES_AT + 1] & CODEC_MASK) return 0;
    int64_t records = big32(start + RECORD_COUNT_AT);
    s->crc[0] = s->crc[1] = 0, s->used = 0, s->block[0] = 0;
    for (int64_t i = 0; i < records; i++) {
        struct record record;
        if (!read_fields(&at, end, i, &record)) return 0;
        if (!i && content) content_digest(record.key, record.key_bytes, record.value, record.value_bytes, content);
        digest_field(s, record.key, record.key_bytes);
        digest_field(s, record.value, record.value_bytes);
    }
    digest_flush(s);
    return at == end;
}

/* digest_batch(batch): its anchor if it has a producer id (logged.py), and the digest of its records */
static PyObject *digest_batch(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    Py_buffer batch;
    struct digest s;
    uint8_t digest[DIGEST_BYTES], anchor[DIGEST_BYTES], named[IDENTITY_BYTES];
    (void)module;
    if (count != 1) return wrong_arguments();
    if (!bytes_of(args[0], &batch)) return NULL;
    int is_usual = digest_records(&batch, &s, NULL);
    if (is_usual) {
        const uint8_t *start = batch.buf;
        memcpy(named, start + PRODUCER_ID_AT, IDENTITY_BYTES - 4);
        memcpy(named + IDENTITY_BYTES - 4, start + LAST_OFFSET_DELTA_AT, 4);
        blake_of("batch", named, sizeof named, anchor);
        put_digest(digest, s.crc);
    }
    PyBuffer_Release(&batch);
    PyObject *result = is_usual ? PyTuple_New(2) : none();
    if (!is_usual || !result) return result;
    PyTuple_SetItem(result, 0, PyBytes_FromStringAndSize((const char *)anchor, DIGEST_BYTES));
    PyTuple_SetItem(result, 1, PyBytes_FromStringAndSize((const char *)digest, DIGEST_BYTES));
    return result;
}

/* mark_batch(batch): a whole, uncompressed batch of format v2 with the marker of its identity in the place of its producer
   (header_marker.py), its anchor, the digest of its first record's content, and the digest of its records */
static PyObject *mark_batch(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    Py_buffer batch;
    PyObject *marked = NULL, *result = NULL;
    (void)module;
    if (count != 1) return wrong_arguments();
    if (!bytes_of(args[0], &batch)) return NULL;
    const uint8_t *start = batch.buf;
    uint8_t content[DIGEST_BYTES] = {0};
    struct digest s;
    if (!digest_records(&batch, &s, content)) goto none;
    uint8_t digest[DIGEST_BYTES], anchor[DIGEST_BYTES], marker[DIGEST_BYTES], named[8 + 4] = {0};
    put_digest(digest, s.crc);
    blake_of("header", start + PRODUCER_ID_AT, IDENTITY_BYTES, marker);
    /* Epochs -1 and 0 are what producers without idempotence send. */
    if (marker[0] == marker[1] && (marker[0] == 0xff || !marker[0])) marker[0] ^= 0x40;
    memcpy(named + 8 - HEADER_MARKER_BYTES, marker, HEADER_MARKER_BYTES);
    memcpy(named + 8, start + RECORD_COUNT_AT, 4);
    blake_of("batch", named, sizeof named, anchor);
    if (!(marked = PyBytes_FromStringAndSize((const char *)start, batch.len))) goto done;
    uint8_t *out = (uint8_t *)PyBytes_AsString(marked);
    memset(out + PRODUCER_ID_AT, 0xff, 8);
    memcpy(out + PRODUCER_ID_AT + 8, marker, HEADER_MARKER_BYTES);
    put32(out + BATCH_CRC_AT, checksum(&crc32_castagnoli, 0, out + ATTRIBUTES_AT, (size_t)(batch.len - ATTRIBUTES_AT)));
    if (!(result = PyTuple_New(4))) {
        Py_DecRef(marked);
        goto done;
    }
    PyTuple_SetItem(result, 0, marked);
    PyTuple_SetItem(result, 1, PyBytes_FromStringAndSize((const char *)anchor, DIGEST_BYTES));
    PyTuple_SetItem(result, 2, PyBytes_FromStringAndSize((const char *)content, DIGEST_BYTES));
    PyTuple_SetItem(result, 3, PyBytes_FromStringAndSize((const char *)digest, DIGEST_BYTES));
    goto done;
none:
    result = none();
done:
    PyBuffer_Release(&batch);
    return result;
}

static PyMethodDef METHODS[] = {
    {"crc32c", (void *)crc32c, METH_FASTCALL, NULL},
    {"convert", (void *)convert, METH_FASTCALL, NULL},
    {"convert_part", (void *)convert_part, METH_FASTCALL, NULL},
    {"wrap", (void *)wrap, METH_FASTCALL, NULL},
    {"wrap_batches", (void *)wrap_batches, METH_FASTCALL, NULL},
    {"encode_marker", (void *)encode_marker, METH_FASTCALL, NULL},
    {"digest_content", (void *)digest_content, METH_FASTCALL, NULL},
    {"digest_messages", (void *)digest_messages, METH_FASTCALL, NULL},
    {"digest_marker", (void *)digest_marker, METH_FASTCALL, NULL},
    {"mark_batch", (void *)mark_batch, METH_FASTCALL, NULL},
    {"digest_batch", (void *)digest_batch, METH_FASTCALL, NULL},
    {"unsnappy_part", (void *)unsnappy_part, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};
static PyModuleDef MODULE = {.reference_count = 1, .name = "compiled", .size = -1, .methods = METHODS};

API PyObject *PyInit_compiled(void);
PyObject *PyInit_compiled(void) {
    choose_checksum();
    PyObject *module = PyModule_Create2(&MODULE, ABI_VERSION);
    if (module && PyModule_AddIntConstant(module, "REVISION", REVISION)) {
        Py_DecRef(module);
        return NULL;
    }
    return module;
}
