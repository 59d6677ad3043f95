# The C types of _values.py, and the few primitives that are written in C: what they do in Python stands in _values.py.
import cython

from penstock.formats._kernel cimport RowBuffer

cdef extern from *:
    """
    #ifndef PENSTOCK_COMMIT_LOG_PRIMITIVES
    #define PENSTOCK_COMMIT_LOG_PRIMITIVES
    #include <stdint.h>
    #include <string.h>

    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    #define PENSTOCK_SWAP32(x) (x)
    #define PENSTOCK_SWAP64(x) (x)
    #define PENSTOCK_LITTLE64(x) __builtin_bswap64(x)
    #else
    #define PENSTOCK_SWAP32(x) __builtin_bswap32(x)
    #define PENSTOCK_SWAP64(x) __builtin_bswap64(x)
    #define PENSTOCK_LITTLE64(x) (x)
    #endif
    #define PENSTOCK_HIGH_BITS 0x8080808080808080ull

    static inline uint64_t penstock_load64(const unsigned char *p) {
        uint64_t word;
        memcpy(&word, p, 8);
        return word;
    }

    static inline uint32_t penstock_load32(const unsigned char *p) {
        uint32_t word;
        memcpy(&word, p, 4);
        return word;
    }

    static inline uint32_t penstock_be32(const unsigned char *p, Py_ssize_t at) {
        return PENSTOCK_SWAP32(penstock_load32(p + at));
    }

    static inline uint64_t penstock_be64(const unsigned char *p, Py_ssize_t at) {
        return PENSTOCK_SWAP64(penstock_load64(p + at));
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
        if (at + bytes >= 8) {
            /* The eight bytes that end with the number are in the buffer; what stands before it is shifted out. */
            int before = bytes > 8 ? 0 : 64 - 7 * (int)bytes;
            return penstock_be64(p, at + bytes - 8) << before >> before;
        }
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

    /* A zigzag number of seven bits a byte. There must be room for ten bytes, however many it takes. */
    static inline Py_ssize_t penstock_put_long(unsigned char *out, Py_ssize_t at, int64_t value) {
        uint64_t rest = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
        uint64_t word = rest;
        int bytes;
        if (rest < 128) {
            out[at] = (unsigned char)rest;
            return at + 1;
        }
        /* 56 bits are spread over eight bytes in three steps. */
        word = (word & 0x000000000fffffffull) | (word & 0x00fffffff0000000ull) << 4;
        word = (word & 0x00003fff00003fffull) | (word & 0x0fffc0000fffc000ull) << 2;
        word = (word & 0x007f007f007f007full) | (word & 0x3f803f803f803f80ull) << 1;
        if (rest >> 56 == 0) {
            bytes = ((63 - __builtin_clzll(rest)) * 9 + 73) >> 6;
            word = PENSTOCK_LITTLE64(word | (PENSTOCK_HIGH_BITS >> 8 >> (64 - 8 * bytes)));
            memcpy(out + at, &word, 8);
            return at + bytes;
        }
        word = PENSTOCK_LITTLE64(word | PENSTOCK_HIGH_BITS);
        memcpy(out + at, &word, 8);
        rest >>= 56;
        out[at + 8] = (unsigned char)rest;
        out[at + 9] = 1;
        return at + 9 + (rest > 127);
    }

    static inline void penstock_copy(unsigned char *out, Py_ssize_t at, const unsigned char *p, Py_ssize_t from,
                                     Py_ssize_t size) {
        out += at;
        p += from;
        /* Most values are short: two copies that may overlap are cheaper than a call. */
        if (size > 64) {
            memcpy(out, p, (size_t)size);
        } else if (size >= 32) {
            memcpy(out, p, 16);
            memcpy(out + 16, p + 16, 16);
            memcpy(out + size - 32, p + size - 32, 16);
            memcpy(out + size - 16, p + size - 16, 16);
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
        if (size == 8) {
            uint64_t word = __builtin_bswap64(penstock_load64(p + from));
            memcpy(out + at, &word, 8);
            return;
        }
        for (Py_ssize_t i = 0; i < size; i++)
            out[at + i] = p[from + size - 1 - i];
    }

    static inline void penstock_fill(unsigned char *out, Py_ssize_t at, Py_ssize_t size) {
        memset(out + at, 0, (size_t)size);
    }

    static inline int penstock_same(const unsigned char *p, Py_ssize_t at, const unsigned char *q, Py_ssize_t size) {
        /* Most that differ do so at once, which is cheaper to see than a call. */
        if (!__builtin_constant_p(size) && size >= 8 && penstock_load64(p + at) != penstock_load64(q))
            return 0;
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

    static inline uint32_t penstock_le32(const unsigned char *p) { return __builtin_bswap32(penstock_be32(p, 0)); }

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

    /* From offset n, and from 16 + n, the bytes of a register moved by n places to the end and to the begin. */
    static const unsigned char penstock_moves[48] = {
        128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128,
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
        128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128,
    };

    /* CRC-32 by carry-less multiplication (V. Gopal and others, Intel 2009): 16 bytes or more. */
    __attribute__((target("pclmul,sse4.1"))) static uint32_t penstock_crc_fold(const unsigned char *p, Py_ssize_t size,
                                                                              uint32_t crc) {
        const __m128i by4 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
        const __m128i by1 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
        const __m128i last = _mm_set_epi64x(0, 0x0163cd6124);
        const __m128i barrett = _mm_set_epi64x(0x01f7011641, 0x01db710641);
        const __m128i low = _mm_setr_epi32(-1, 0, -1, 0);
        __m128i a = _mm_xor_si128(PENSTOCK_LOAD(p, 0), _mm_cvtsi32_si128((int)crc));
        __m128i b, c, d;
        if (size >= 128) {
            b = PENSTOCK_LOAD(p, 16);
            c = PENSTOCK_LOAD(p, 32);
            d = PENSTOCK_LOAD(p, 48);
            for (p += 64, size -= 64; size >= 64; p += 64, size -= 64) {
                a = PENSTOCK_FOLD(a, by4, PENSTOCK_LOAD(p, 0));
                b = PENSTOCK_FOLD(b, by4, PENSTOCK_LOAD(p, 16));
                c = PENSTOCK_FOLD(c, by4, PENSTOCK_LOAD(p, 32));
                d = PENSTOCK_FOLD(d, by4, PENSTOCK_LOAD(p, 48));
            }
            a = PENSTOCK_FOLD(a, by1, b);
            a = PENSTOCK_FOLD(a, by1, c);
            a = PENSTOCK_FOLD(a, by1, d);
        } else {
            p += 16;
            size -= 16;
        }
        for (; size >= 16; p += 16, size -= 16)
            a = PENSTOCK_FOLD(a, by1, PENSTOCK_LOAD(p, 0));
        if (size) {
            /* What is left makes a block with the end of what was read, and its begin is folded over that block. */
            c = PENSTOCK_LOAD(penstock_moves, 16 + size);
            b = _mm_blendv_epi8(_mm_shuffle_epi8(a, c), PENSTOCK_LOAD(p, size - 16), c);
            a = PENSTOCK_FOLD(_mm_shuffle_epi8(a, PENSTOCK_LOAD(penstock_moves, size)), by1, b);
        }
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

    static uint32_t penstock_crc_any(const unsigned char *p, Py_ssize_t size, uint32_t seed) {
        uint32_t crc = ~seed;
    #ifdef PENSTOCK_FOLDS
        if (size >= 16 && penstock_crc_folds)
            return ~penstock_crc_fold(p, size, crc);
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

    static inline uint32_t penstock_crc32(const unsigned char *p, Py_ssize_t at, Py_ssize_t size, uint32_t seed) {
        /* An entry's size has four bytes, and its checksum is taken where it is compared. */
        if (__builtin_constant_p(size) && size == 4)
            return ~penstock_crc_word(~seed ^ penstock_le32(p + at), 0);
        return penstock_crc_any(p + at, size, seed);
    }

    /* Text is copied and looked at in one turn; whether it is Unicode. */
    static inline int penstock_copy_text(unsigned char *out, Py_ssize_t at, const unsigned char *p, Py_ssize_t from,
                                         Py_ssize_t size) {
        const unsigned char *text = p + from;
        uint64_t seen = 0, low, high;
        Py_ssize_t i = 0;
        out += at;
        if (size >= 16) {
            for (; i < size - 16; i += 16) {
                low = penstock_load64(text + i);
                high = penstock_load64(text + i + 8);
                memcpy(out + i, &low, 8);
                memcpy(out + i + 8, &high, 8);
                seen |= low | high;
            }
            low = penstock_load64(text + size - 16);
            high = penstock_load64(text + size - 8);
            memcpy(out + size - 16, &low, 8);
            memcpy(out + size - 8, &high, 8);
            seen |= low | high;
        } else if (size >= 8) {
            low = penstock_load64(text);
            high = penstock_load64(text + size - 8);
            memcpy(out, &low, 8);
            memcpy(out + size - 8, &high, 8);
            seen = low | high;
        } else {
            for (; i < size; i++) {
                out[i] = text[i];
                seen |= text[i];
            }
        }
        return !(seen & PENSTOCK_HIGH_BITS) || penstock_is_text(p, from, size);
    }

    /* Two's complement, big-endian, without bytes that only repeat the sign; no bytes are 0. */
    static inline Py_ssize_t penstock_put_integer(unsigned char *out, Py_ssize_t pos, const unsigned char *src,
                                                  Py_ssize_t at, Py_ssize_t size) {
        while (size > 1 && ((src[at] == 0 && src[at + 1] < 128) || (src[at] == 255 && src[at + 1] > 127))) {
            at++;
            size--;
        }
        if (size == 0) {
            out[pos] = 2;
            out[pos + 1] = 0;
            return pos + 2;
        }
        pos = penstock_put_long(out, pos, size);
        penstock_copy(out, pos, src, at, size);
        return pos + size;
    }

    /* Months, days and nanoseconds: three variable-length numbers of one sign. */
    static Py_ssize_t penstock_put_duration(unsigned char *out, Py_ssize_t pos, const unsigned char *src,
                                            Py_ssize_t at, Py_ssize_t size) {
        Py_ssize_t end = at + size, step;
        int below = 0, above = 0;
        for (int part = 0; part < 3; part++) {
            uint64_t raw;
            int64_t value;
            step = penstock_vint_bytes(src, at, end);
            if (step == 0)
                return -1;
            raw = penstock_vint_value(src, at, step);
            at += step;
            value = (int64_t)(raw >> 1 ^ (0 - (raw & 1)));
            if (part < 2 && value != (int32_t)value)
                return -1;
            below |= value < 0;
            above |= value > 0;
            pos = penstock_put_long(out, pos, value);
        }
        return at != end || (below && above) ? -1 : pos;
    }

    /* The stamp of a cell in a change of this time. */
    static inline Py_ssize_t penstock_put_stamp(unsigned char *out, Py_ssize_t pos, int64_t own, int64_t time,
                                                int64_t ttl, int64_t local) {
        if (own == time && ttl == 0) {
            out[pos] = 0;
            return pos + 1;
        }
        out[pos] = 2;
        if (own == time) {
            out[pos + 1] = 0;
            pos += 2;
        } else {
            out[pos + 1] = 2;
            pos = penstock_put_long(out, pos + 2, own);
        }
        if (ttl == 0) {
            out[pos] = 0;
            return pos + 1;
        }
        out[pos] = 2;
        pos = penstock_put_long(out, pos + 1, ttl);
        return penstock_put_long(out, pos, local);
    }

    /* Time and second of a tombstone in a change of this time. */
    static inline Py_ssize_t penstock_put_deleted(unsigned char *out, Py_ssize_t pos, int64_t own, int64_t time,
                                                  int64_t local) {
        if (own == time) {
            out[pos++] = 0;
        } else {
            out[pos] = 2;
            pos = penstock_put_long(out, pos + 1, own);
        }
        out[pos] = 2;
        return penstock_put_long(out, pos + 1, local);
    }

    /* A Deletion that may be none. */
    static inline Py_ssize_t penstock_put_deletion(unsigned char *out, Py_ssize_t pos, int64_t time, int64_t local) {
        if (time == INT64_MIN) {
            out[pos] = 0;
            return pos + 1;
        }
        out[pos] = 2;
        pos = penstock_put_long(out, pos + 1, time);
        if (local < 0) {
            out[pos] = 0;
            return pos + 1;
        }
        out[pos] = 2;
        return penstock_put_long(out, pos + 1, local);
    }

    /* The kinds, as the enum below numbers them. */
    enum {
        PENSTOCK_BOOLEAN, PENSTOCK_INT8, PENSTOCK_INT16, PENSTOCK_INT32, PENSTOCK_INT64, PENSTOCK_FLOAT32,
        PENSTOCK_FLOAT64, PENSTOCK_TEXT, PENSTOCK_ASCII, PENSTOCK_BYTES, PENSTOCK_UUID, PENSTOCK_TIMEUUID,
        PENSTOCK_VARINT, PENSTOCK_DECIMAL, PENSTOCK_INET, PENSTOCK_DATE, PENSTOCK_DURATION
    };

    /* The value in the `size` bytes at `at`, which are there, at `pos`, where there is room; where it ends, or -1. */
    __attribute__((always_inline)) static inline Py_ssize_t penstock_put_scalar_here(
        unsigned char *out, Py_ssize_t pos, const unsigned char *src, Py_ssize_t at, Py_ssize_t size, int kind) {
        switch (kind) {
        case PENSTOCK_TEXT:
            pos = penstock_put_long(out, pos, size);
            return penstock_copy_text(out, pos, src, at, size) ? pos + size : -1;
        case PENSTOCK_INT64:
            return size == 8 ? penstock_put_long(out, pos, (int64_t)penstock_be64(src, at)) : -1;
        case PENSTOCK_INT32:
            return size == 4 ? penstock_put_long(out, pos, (int32_t)penstock_be32(src, at)) : -1;
        case PENSTOCK_TIMEUUID:
            if (size != 16 || src[at + 6] >> 4 != 1)
                return -1;
            /* Falls through. */
        case PENSTOCK_UUID:
            if (size != 16)
                return -1;
            memcpy(out + pos, src + at, 16);
            return pos + 16;
        case PENSTOCK_FLOAT64:
            if (size != 8)
                return -1;
            penstock_copy_reversed(out, pos, src, at, 8);
            return pos + 8;
        case PENSTOCK_BOOLEAN:
            if (size != 1)
                return -1;
            out[pos] = src[at] != 0;
            return pos + 1;
        case PENSTOCK_DATE:
            return size == 4 ? penstock_put_long(out, pos, (int64_t)(int32_t)penstock_be32(src, at) ^ (int64_t)INT32_MIN)
                             : -1;
        case PENSTOCK_DECIMAL:
            if (size < 4)
                return -1;
            pos = penstock_put_integer(out, pos, src, at + 4, size - 4);
            return penstock_put_long(out, pos, (int32_t)penstock_be32(src, at));
        case PENSTOCK_VARINT:
            return penstock_put_integer(out, pos, src, at, size);
        case PENSTOCK_FLOAT32:
            if (size != 4)
                return -1;
            penstock_copy_reversed(out, pos, src, at, 4);
            return pos + 4;
        case PENSTOCK_INT16:
            return size == 2 ? penstock_put_long(out, pos, (int16_t)(src[at] << 8 | src[at + 1])) : -1;
        case PENSTOCK_INT8:
            return size == 1 ? penstock_put_long(out, pos, (int8_t)src[at]) : -1;
        case PENSTOCK_DURATION:
            return penstock_put_duration(out, pos, src, at, size);
        case PENSTOCK_INET:
            if (size != 4 && size != 16)
                return -1;
            break;
        case PENSTOCK_ASCII:
            if (penstock_ascii_run(src, at, size) != size)
                return -1;
            break;
        default:
            break;
        }
        pos = penstock_put_long(out, pos, size);
        penstock_copy(out, pos, src, at, size);
        return pos + size;
    }

    /* The same as a call; the other is for the one loop that has most of them. */
    static Py_ssize_t penstock_put_scalar(unsigned char *out, Py_ssize_t pos, const unsigned char *src, Py_ssize_t at,
                                          Py_ssize_t size, int kind) {
        return penstock_put_scalar_here(out, pos, src, at, size, kind);
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
    Py_ssize_t put_scalar "penstock_put_scalar"(unsigned char *out, Py_ssize_t pos, const unsigned char *src, Py_ssize_t at, Py_ssize_t size, int kind) noexcept nogil
    Py_ssize_t put_scalar_here "penstock_put_scalar_here"(unsigned char *out, Py_ssize_t pos, const unsigned char *src, Py_ssize_t at, Py_ssize_t size, int kind) noexcept nogil
    Py_ssize_t put_stamp "penstock_put_stamp"(unsigned char *out, Py_ssize_t pos, long long own, long long time, long long ttl, long long local) noexcept nogil
    Py_ssize_t put_deleted "penstock_put_deleted"(unsigned char *out, Py_ssize_t pos, long long own, long long time, long long local) noexcept nogil
    Py_ssize_t put_deletion "penstock_put_deletion"(unsigned char *out, Py_ssize_t pos, long long time, long long local) noexcept nogil
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
