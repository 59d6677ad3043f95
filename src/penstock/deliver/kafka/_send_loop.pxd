# The C types of _send_loop.py, and the part of librdkafka's interface that takes records.
import cython
from cpython.bytes cimport PyBytes_AS_STRING

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <sys/types.h>

    /* As in rdkafka.h, which need not be here: the library comes with its Python package. */
    typedef struct {
        int kind;
        union {
            int number;
            void *topic;
            struct { const void *data; size_t size; } bytes;
            struct { const char *name; const void *data; ssize_t size; } header;
            char room[64];
        } is;
    } handing_part;
    typedef void *(*handing_take)(void *producer, const handing_part *parts, size_t count);
    typedef int (*handing_code)(const void *error);
    typedef void (*handing_forget)(void *error);
    enum { HANDING_TOPIC = 2, HANDING_VALUE = 4, HANDING_KEY = 5, HANDING_FLAGS = 7, HANDING_HEADER = 9 };
    enum { HANDING_COPY = 2 };

    enum { HANDING_COLUMNS_MAX = 32 };

    typedef struct {
        const int32_t *offsets;
        const unsigned char *data;
        /* One byte for each value, 0 where it is null; NULL when none is. */
        const unsigned char *there;
        /* Of a header. */
        const char *name;
        /* It has one value, for all records that have a value themselves. */
        int fixed;
    } handing_column;

    static void handing_bytes(handing_part *part, int kind, const handing_column *column, ptrdiff_t at) {
        part->kind = kind;
        part->is.bytes.data = NULL;
        part->is.bytes.size = 0;
        if (column->there == NULL || column->there[at]) {
            part->is.bytes.data = column->data + column->offsets[at];
            part->is.bytes.size = (size_t) (column->offsets[at + 1] - column->offsets[at]);
        }
    }

    /* A header, unless the record has none of this name; gives how many parts it took. */
    static int handing_header(handing_part *part, const handing_column *column, ptrdiff_t at, int tombstone) {
        if (column->fixed ? tombstone : column->there != NULL && !column->there[at])
            return 0;
        const int32_t *offsets = column->offsets + (column->fixed ? 0 : at);
        part->kind = HANDING_HEADER;
        part->is.header.name = column->name;
        part->is.header.data = column->data + offsets[0];
        part->is.header.size = offsets[1] - offsets[0];
        return 1;
    }

    static ptrdiff_t handing_over(uintptr_t take, uintptr_t code, uintptr_t forget, uintptr_t producer,
                                  uintptr_t topic, const handing_column *columns, ptrdiff_t width,
                                  ptrdiff_t first, ptrdiff_t end, int *trouble) {
        handing_part parts[2 + HANDING_COLUMNS_MAX];
        parts[0].kind = HANDING_TOPIC;
        parts[0].is.topic = (void *) topic;
        parts[1].kind = HANDING_FLAGS;
        parts[1].is.number = HANDING_COPY;
        *trouble = 0;
        for (ptrdiff_t at = first; at < end; at++) {
            handing_bytes(&parts[2], HANDING_KEY, &columns[0], at);
            handing_bytes(&parts[3], HANDING_VALUE, &columns[1], at);
            size_t count = 4;
            for (ptrdiff_t header = 2; header < width; header++)
                count += handing_header(&parts[count], &columns[header], at, parts[3].is.bytes.data == NULL);
            void *error = ((handing_take) take)((void *) producer, parts, count);
            if (error != NULL) {
                *trouble = ((handing_code) code)(error);
                ((handing_forget) forget)(error);
                return at;
            }
        }
        return end;
    }
    """
    ctypedef struct Column "handing_column":
        const int *offsets
        const unsigned char *data
        const unsigned char *there
        const char *name
        int fixed

    Py_ssize_t handing_over(
        size_t take, size_t code, size_t forget, size_t producer, size_t topic, const Column *columns,
        Py_ssize_t width, Py_ssize_t first, Py_ssize_t end, int *trouble
    )

ctypedef Column *ColumnPlace


@cython.final
cdef class Calls:
    cdef size_t take
    cdef size_t code
    cdef size_t forget
    cdef size_t producer


@cython.final
cdef class Records:
    cdef Column columns[32]
    cdef Py_ssize_t width
    cdef readonly Py_ssize_t count
    # What the pointers point into.
    cdef list held

    @cython.locals(column=ColumnPlace)
    cdef int put(
        self, const int[::1] offsets, const unsigned char[::1] data, const unsigned char[::1] there, Py_ssize_t count,
        bytes name, bint fixed
    ) except -1
    @cython.locals(trouble=cython.int, at=cython.Py_ssize_t)
    cpdef tuple hand_over(self, Calls calls, size_t topic, Py_ssize_t first, Py_ssize_t end)
