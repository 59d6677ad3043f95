# The C types of _values.py, and the few primitives that are written in C: what they do in Python stands in _values.py.
import cython

from penstock.formats._kernel cimport RowBuffer

cdef extern from *:
    """
    #ifndef PENSTOCK_COMMIT_LOG_PRIMITIVES
    #define PENSTOCK_COMMIT_LOG_PRIMITIVES
    #include <stdint.h>
    #include <string.h>

    static inline uint32_t penstock_be32(const unsigned char *p, Py_ssize_t at) {
        p += at;
        return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    }

    static inline uint64_t penstock_be64(const unsigned char *p, Py_ssize_t at) {
        return (uint64_t)penstock_be32(p, at) << 32 | penstock_be32(p, at + 4);
    }

    static inline int64_t penstock_signed32(uint64_t value) { return (int32_t)(uint32_t)value; }

    static inline int64_t penstock_signed64(uint64_t value) { return (int64_t)value; }

    /* A local deletion second from the sum of 64 bits that the log gives; see _values.py. */
    static inline int64_t penstock_local_second(uint64_t sum, int is_unsigned) {
        uint32_t second = (uint32_t)sum;
        if (!is_unsigned)
            return second == 0x7fffffffu ? INT64_MIN : (int64_t)(int32_t)second;
        if (second == 0xffffffffu)
            return INT64_MIN;
        return second == 0xfffffffeu ? -1 : (int64_t)second;
    }

    /* How many bytes a variable-length number has, its first byte at `at`; 0 when not all of them are there. */
    static inline Py_ssize_t penstock_vint_bytes(const unsigned char *p, Py_ssize_t at, Py_ssize_t end) {
        Py_ssize_t bytes;
        if (at >= end)
            return 0;
        if (p[at] < 128)
            return 1;
        /* The first byte's leading one bits say how many follow. */
        bytes = 1 + __builtin_clz(((uint32_t)(unsigned char)~p[at] << 24) | 0x00800000u);
        return bytes > end - at ? 0 : bytes;
    }

    static inline uint64_t penstock_vint_value(const unsigned char *p, Py_ssize_t at, Py_ssize_t bytes) {
        uint64_t value = p[at];
        if (bytes == 1)
            return value;
        value = bytes < 8 ? value & (0xffu >> bytes) : 0;
        for (Py_ssize_t i = 1; i < bytes; i++)
            value = value << 8 | p[at + i];
        return value;
    }

    /* The length that stands at `at` when so many bytes follow it, else -1. */
    static inline Py_ssize_t penstock_counted(const unsigned char *p, Py_ssize_t at, Py_ssize_t end) {
        Py_ssize_t bytes = penstock_vint_bytes(p, at, end);
        uint64_t value;
        if (bytes == 0)
            return -1;
        value = penstock_vint_value(p, at, bytes);
        return value > (uint64_t)(end - at - bytes) ? -1 : (Py_ssize_t)value;
    }

    static inline Py_ssize_t penstock_put_long(unsigned char *out, Py_ssize_t at, int64_t value) {
        uint64_t rest = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
        while (rest > 127) {
            out[at++] = (unsigned char)(rest | 128);
            rest >>= 7;
        }
        out[at++] = (unsigned char)rest;
        return at;
    }

    static inline void penstock_copy(unsigned char *out, Py_ssize_t at, const unsigned char *p, Py_ssize_t from,
                                     Py_ssize_t size) {
        out += at;
        p += from;
        /* Most values are short: two copies that may overlap are cheaper than a call. */
        if (size > 32) {
            memcpy(out, p, (size_t)size);
        } else if (size >= 16) {
            memcpy(out, p, 16);
            memcpy(out + size - 16, p + size - 16, 16);
        } else if (size >= 8) {
            memcpy(out, p, 8);
            memcpy(out + size - 8, p + size - 8, 8);
        } else if (size >= 4) {
            memcpy(out, p, 4);
            memcpy(out + size - 4, p + size - 4, 4);
        } else {
            for (Py_ssize_t i = 0; i < size; i++)
                out[i] = p[i];
        }
    }

    /* The bytes in reverse order: big-endian floats become Avro's little-endian ones. */
    static inline void penstock_copy_reversed(unsigned char *out, Py_ssize_t at, const unsigned char *p,
                                              Py_ssize_t from, Py_ssize_t size) {
        for (Py_ssize_t i = 0; i < size; i++)
            out[at + i] = p[from + size - 1 - i];
    }

    static inline void penstock_fill(unsigned char *out, Py_ssize_t at, Py_ssize_t size) {
        memset(out + at, 0, (size_t)size);
    }

    static inline int penstock_same(const unsigned char *p, Py_ssize_t at, const unsigned char *q, Py_ssize_t size) {
        return memcmp(p + at, q, (size_t)size) == 0;
    }

    /* How many of the bytes are ASCII before the first that is not. */
    static inline Py_ssize_t penstock_ascii_run(const unsigned char *p, Py_ssize_t at, Py_ssize_t size) {
        Py_ssize_t i = 0;
        uint64_t word;
        for (; i + 8 <= size; i += 8) {
            memcpy(&word, p + at + i, 8);
            if (word & 0x8080808080808080ull)
                break;
        }
        while (i < size && p[at + i] < 128)
            i++;
        return i;
    }

    static inline int penstock_is_text(const unsigned char *p, Py_ssize_t at, Py_ssize_t size) {
        Py_ssize_t i = penstock_ascii_run(p, at, size);
        p += at;
        while (i < size) {
            unsigned char first = p[i];
            Py_ssize_t left = size - i;
            if (first < 0x80) {
                i += penstock_ascii_run(p, i, left);
            } else if (first >= 0xc2 && first <= 0xdf) {
                if (left < 2 || (p[i + 1] & 0xc0) != 0x80)
                    return 0;
                i += 2;
            } else if (first >= 0xe0 && first <= 0xef) {
                if (left < 3 || (p[i + 1] & 0xc0) != 0x80 || (p[i + 2] & 0xc0) != 0x80)
                    return 0;
                if ((first == 0xe0 && p[i + 1] < 0xa0) || (first == 0xed && p[i + 1] > 0x9f))
                    return 0;
                i += 3;
            } else if (first >= 0xf0 && first <= 0xf4) {
                if (left < 4 || (p[i + 1] & 0xc0) != 0x80 || (p[i + 2] & 0xc0) != 0x80 || (p[i + 3] & 0xc0) != 0x80)
                    return 0;
                if ((first == 0xf0 && p[i + 1] < 0x90) || (first == 0xf4 && p[i + 1] > 0x8f))
                    return 0;
                i += 4;
            } else {
                return 0;
            }
        }
        return 1;
    }

    /* CRC-32 as zlib's, sixteen bytes at a time; each module makes the tables for itself when it is loaded. */
    static uint32_t penstock_crc_tables[16][256];

    static inline void penstock_crc_prepare(void) {
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t crc = i;
            for (int bit = 0; bit < 8; bit++)
                crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
            penstock_crc_tables[0][i] = crc;
        }
        for (int table = 1; table < 16; table++)
            for (int i = 0; i < 256; i++) {
                uint32_t crc = penstock_crc_tables[table - 1][i];
                penstock_crc_tables[table][i] = crc >> 8 ^ penstock_crc_tables[0][crc & 0xff];
            }
    }

    static inline uint32_t penstock_le32(const unsigned char *p) {
        return (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0];
    }

    static inline uint32_t penstock_crc_word(uint32_t word, int table) {
        return penstock_crc_tables[table + 3][word & 0xff] ^ penstock_crc_tables[table + 2][word >> 8 & 0xff] ^
               penstock_crc_tables[table + 1][word >> 16 & 0xff] ^ penstock_crc_tables[table][word >> 24];
    }

    #if defined(__x86_64__) && defined(__GNUC__)
    #include <smmintrin.h>
    #include <wmmintrin.h>
    #define PENSTOCK_FOLDS

    static int penstock_crc_folds;

    /* The value x, folded over the 128 bits that follow it, by a pair of constants. */
    #define PENSTOCK_FOLD(x, k, next) \
        _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x00), _mm_clmulepi64_si128(x, k, 0x11)), next)
    #define PENSTOCK_LOAD(p, at) _mm_loadu_si128((const __m128i *)((p) + (at)))

    /* CRC-32 by carry-less multiplication (V. Gopal and others, Intel 2009): 64 bytes or more, a multiple of 16. */
    __attribute__((target("pclmul,sse4.1"))) static uint32_t penstock_crc_fold(const unsigned char *p, Py_ssize_t size,
                                                                              uint32_t crc) {
        const __m128i by4 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
        const __m128i by1 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
        const __m128i last = _mm_set_epi64x(0, 0x0163cd6124);
        const __m128i barrett = _mm_set_epi64x(0x01f7011641, 0x01db710641);
        const __m128i low = _mm_setr_epi32(-1, 0, -1, 0);
        __m128i a = _mm_xor_si128(PENSTOCK_LOAD(p, 0), _mm_cvtsi32_si128((int)crc));
        __m128i b = PENSTOCK_LOAD(p, 16), c = PENSTOCK_LOAD(p, 32), d = PENSTOCK_LOAD(p, 48);
        for (p += 64, size -= 64; size >= 64; p += 64, size -= 64) {
            a = PENSTOCK_FOLD(a, by4, PENSTOCK_LOAD(p, 0));
            b = PENSTOCK_FOLD(b, by4, PENSTOCK_LOAD(p, 16));
            c = PENSTOCK_FOLD(c, by4, PENSTOCK_LOAD(p, 32));
            d = PENSTOCK_FOLD(d, by4, PENSTOCK_LOAD(p, 48));
        }
        a = PENSTOCK_FOLD(a, by1, b);
        a = PENSTOCK_FOLD(a, by1, c);
        a = PENSTOCK_FOLD(a, by1, d);
        for (; size >= 16; p += 16, size -= 16)
            a = PENSTOCK_FOLD(a, by1, PENSTOCK_LOAD(p, 0));
        a = _mm_xor_si128(_mm_srli_si128(a, 8), _mm_clmulepi64_si128(a, by1, 0x10));
        a = _mm_xor_si128(_mm_srli_si128(a, 4), _mm_clmulepi64_si128(_mm_and_si128(a, low), last, 0x00));
        b = _mm_and_si128(_mm_clmulepi64_si128(_mm_and_si128(a, low), barrett, 0x10), low);
        a = _mm_xor_si128(a, _mm_clmulepi64_si128(b, barrett, 0x00));
        return (uint32_t)_mm_extract_epi32(a, 1);
    }
    #endif

    static inline void penstock_crc_choose(void) {
    #ifdef PENSTOCK_FOLDS
        penstock_crc_folds = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    #endif
        penstock_crc_prepare();
    }

    static inline uint32_t penstock_crc32(const unsigned char *p, Py_ssize_t at, Py_ssize_t size, uint32_t seed) {
        uint32_t crc = ~seed;
        p += at;
    #ifdef PENSTOCK_FOLDS
        if (size >= 64 && penstock_crc_folds) {
            crc = penstock_crc_fold(p, size & ~(Py_ssize_t)15, crc);
            p += size & ~(Py_ssize_t)15;
            size &= 15;
        }
    #endif
        for (; size >= 16; size -= 16, p += 16)
            crc = penstock_crc_word(crc ^ penstock_le32(p), 12) ^ penstock_crc_word(penstock_le32(p + 4), 8) ^
                  penstock_crc_word(penstock_le32(p + 8), 4) ^ penstock_crc_word(penstock_le32(p + 12), 0);
        if (size >= 8) {
            crc = penstock_crc_word(crc ^ penstock_le32(p), 4) ^ penstock_crc_word(penstock_le32(p + 4), 0);
            p += 8;
            size -= 8;
        }
        if (size >= 4) {
            crc = penstock_crc_word(crc ^ penstock_le32(p), 0);
            p += 4;
            size -= 4;
        }
        for (; size > 0; size--, p++)
            crc = crc >> 8 ^ penstock_crc_tables[0][(crc ^ *p) & 0xff];
        return ~crc;
    }
    #endif
    """
    const long long NO_TIME "INT64_MIN"
    const long long DAY_ZERO "((int64_t)INT32_MIN)"
    const long long EPOCH_US "1442880000000000LL"
    const long long EPOCH_S "1442880000LL"
    unsigned int be32 "penstock_be32"(const unsigned char *p, Py_ssize_t at) noexcept nogil
    unsigned long long be64 "penstock_be64"(const unsigned char *p, Py_ssize_t at) noexcept nogil
    long long signed32 "penstock_signed32"(unsigned long long value) noexcept nogil
    long long signed64 "penstock_signed64"(unsigned long long value) noexcept nogil
    long long local_second "penstock_local_second"(unsigned long long sum, bint is_unsigned) noexcept nogil
    Py_ssize_t vint_bytes "penstock_vint_bytes"(const unsigned char *p, Py_ssize_t at, Py_ssize_t end) noexcept nogil
    unsigned long long vint_value "penstock_vint_value"(const unsigned char *p, Py_ssize_t at, Py_ssize_t bytes) noexcept nogil
    Py_ssize_t counted "penstock_counted"(const unsigned char *p, Py_ssize_t at, Py_ssize_t end) noexcept nogil
    Py_ssize_t put_long "penstock_put_long"(unsigned char *out, Py_ssize_t at, long long value) noexcept nogil
    void copy "penstock_copy"(unsigned char *out, Py_ssize_t at, const unsigned char *p, Py_ssize_t start, Py_ssize_t size) noexcept nogil
    void copy_reversed "penstock_copy_reversed"(unsigned char *out, Py_ssize_t at, const unsigned char *p, Py_ssize_t start, Py_ssize_t size) noexcept nogil
    void fill "penstock_fill"(unsigned char *out, Py_ssize_t at, Py_ssize_t size) noexcept nogil
    bint same "penstock_same"(const unsigned char *p, Py_ssize_t at, const unsigned char *q, Py_ssize_t size) noexcept nogil
    Py_ssize_t ascii_run "penstock_ascii_run"(const unsigned char *p, Py_ssize_t at, Py_ssize_t size) noexcept nogil
    bint is_text "penstock_is_text"(const unsigned char *p, Py_ssize_t at, Py_ssize_t size) noexcept nogil
    void crc_prepare "penstock_crc_choose"() noexcept nogil
    unsigned int crc32_of "penstock_crc32"(const unsigned char *p, Py_ssize_t at, Py_ssize_t size, unsigned int seed) noexcept nogil

cdef enum:
    BOOLEAN
    INT8
    INT16
    INT32
    INT64
    FLOAT32
    FLOAT64
    TEXT
    ASCII
    BYTES
    UUID
    TIMEUUID
    VARINT
    DECIMAL
    INET
    DATE
    DURATION
    LIST
    MAP
    TUPLE
    USER
    VECTOR

cdef enum:
    SCALAR_BYTES_MORE = 24

cdef enum:
    FITS
    MISFIT
    MORE_FIELDS


@cython.locals(value=cython.longlong)
cdef Py_ssize_t put_scalar(unsigned char *out, Py_ssize_t pos, const unsigned char *src, Py_ssize_t at, Py_ssize_t size, int kind) noexcept
cdef Py_ssize_t _put_odd(unsigned char *out, Py_ssize_t pos, const unsigned char *src, Py_ssize_t at, Py_ssize_t size, int kind) noexcept
cdef Py_ssize_t _put_integer(unsigned char *out, Py_ssize_t pos, const unsigned char *src, Py_ssize_t at, Py_ssize_t size) noexcept
@cython.locals(end=cython.Py_ssize_t, part=cython.int, step=cython.Py_ssize_t, raw=cython.ulonglong, value=cython.longlong,
               below=cython.bint, above=cython.bint)
cdef Py_ssize_t _put_duration(unsigned char *out, Py_ssize_t pos, const unsigned char *src, Py_ssize_t at, Py_ssize_t size) noexcept


@cython.final
cdef class Values:
    cdef const int[::1] kinds
    cdef const int[::1] fixed
    cdef const int[::1] first
    cdef const int[::1] counts
    cdef const int[::1] children
    cdef Py_ssize_t ceiling

    cpdef Py_ssize_t size(self)
    cpdef int kind(self, int node)
    cpdef int width(self, int node) noexcept
    cdef int fields(self, int node) noexcept
    @cython.locals(kind=cython.int)
    cdef bint may_be_empty(self, int node) noexcept
    @cython.locals(child=cython.int, _=cython.int, outcome=cython.int)
    cdef int write_field(self, RowBuffer rows, const unsigned char *src, Py_ssize_t at, Py_ssize_t size, int node, int field) except -1
    @cython.locals(kind=cython.int, pos=cython.Py_ssize_t, out="unsigned char *")
    cdef int write(self, RowBuffer rows, const unsigned char *src, Py_ssize_t at, Py_ssize_t size, int node) except -1
    cdef int write_or_null(self, RowBuffer rows, const unsigned char *src, Py_ssize_t at, Py_ssize_t size, int node) except -1
    @cython.locals(child=cython.int, end=cython.Py_ssize_t, count=cython.longlong, length=cython.longlong, _=cython.longlong,
                   outcome=cython.int)
    cdef int _write_list(self, RowBuffer rows, const unsigned char *src, Py_ssize_t at, Py_ssize_t size, int node) except -1
    @cython.locals(key=cython.int, value=cython.int, end=cython.Py_ssize_t, count=cython.longlong, length=cython.longlong,
                   _=cython.longlong, outcome=cython.int)
    cdef int _write_map(self, RowBuffer rows, const unsigned char *src, Py_ssize_t at, Py_ssize_t size, int node) except -1
    @cython.locals(field=cython.int, end=cython.Py_ssize_t, length=cython.longlong, outcome=cython.int)
    cdef int _write_fields(self, RowBuffer rows, const unsigned char *src, Py_ssize_t at, Py_ssize_t size, int node) except -1
    @cython.locals(child=cython.int, width=cython.int, step=cython.Py_ssize_t, end=cython.Py_ssize_t, length=cython.longlong,
                   _=cython.int, count=cython.int, raw=cython.ulonglong, outcome=cython.int)
    cdef int _write_vector(self, RowBuffer rows, const unsigned char *src, Py_ssize_t at, Py_ssize_t size, int node) except -1
