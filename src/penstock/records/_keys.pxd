# The C types of _keys.py.
import cython
from libc.string cimport memcmp, memcpy

from penstock.formats._kernel cimport BIG, BOOLEAN, BYTES, DOUBLE, FIXED, FLOAT, INT, LONG, NULLABLE, STRING, Program, RowBuffer, RowReader

cdef extern from *:
    void fetch "__builtin_prefetch" (const void *place) nogil

cpdef enum:
    WHOLE = 1
    STATIC = 2
    REGULAR = 4
    COMPLEX = 8
    MARKED = 16
    DELETING = 32
    BEFORE = 64
    TIMELESS = 128

cdef unsigned long long MASK
cdef unsigned long long _MULTIPLY
cdef unsigned long long _MULTIPLY_LOW
cdef unsigned long long _SEED
cdef unsigned long long _SEED_LOW
cdef int _TRUNCATE
cdef int _ORIGIN
cdef int _MARKER
cdef int _DELETION
cdef int _KEY
cdef int _CELLS
cdef int _BEFORE_IMAGE
cdef int _SEAL
cdef int _SORTED_MAX
cdef int _AHEAD
cdef int _SET
cdef int _TEXT
cdef int _NUMBER
cdef int _SMALL_NUMBER
cdef int _TRUTH
cdef int _WIDE
cdef int _WIDTH_MAX
cdef long long _SMALL
cdef long long _LEAST
cdef long long _GREATEST


@cython.final
cdef class RowHash:
    cdef readonly unsigned long long high
    cdef readonly unsigned long long low

    cdef int reset(self, unsigned long long seed) except -1
    cdef int word(self, unsigned long long value) except -1
    @cython.locals(size=cython.ulonglong, at=cython.Py_ssize_t, loaded=cython.ulonglong, shift=cython.int)
    cdef int take(self, RowReader reader, Py_ssize_t start, Py_ssize_t end) except -1
    cdef int finish(self) except -1


@cython.final
cdef class KeyScan:
    cdef Program program
    cdef int partition
    cdef const unsigned long long[::1] names
    cdef const unsigned char[::1] multi
    cdef const unsigned char[::1] statics
    cdef const unsigned char[::1] plain
    cdef const unsigned char[::1] plain_key
    cdef int origin
    cdef const unsigned char[::1] plain_origin
    cdef bint content
    cdef RowHash key
    cdef RowHash whole
    cdef RowHash cell
    cdef long long[:, ::1] places
    cdef unsigned char[:, ::1] marks
    cdef long long[::1] times
    cdef unsigned long long[:, ::1] hashes

    @cython.locals(row=cython.Py_ssize_t)
    cpdef scan(self, RowReader reader, Py_ssize_t count, long long[:, ::1] places, unsigned char[:, ::1] marks, long long[::1] times, unsigned long long[:, ::1] hashes)
    @cython.locals(program=Program, start=cython.Py_ssize_t, flags=cython.int, op=cython.longlong, head=cython.Py_ssize_t, marker=cython.Py_ssize_t, deletion=cython.Py_ssize_t, cells=cython.Py_ssize_t, before=cython.Py_ssize_t, tail=cython.Py_ssize_t)
    cdef int _row(self, RowReader reader, Py_ssize_t row) except -1
    cdef int _pass(self, RowReader reader, int part) except -1
    @cython.locals(program=Program, index=cython.int, at=cython.Py_ssize_t, end=cython.Py_ssize_t)
    cdef int _origin(self, RowReader reader) except -1
    @cython.locals(program=Program, node=cython.int, columns=cython.int, index=cython.int, start=cython.Py_ssize_t, split=cython.Py_ssize_t, at=cython.Py_ssize_t, end=cython.Py_ssize_t, whole=cython.int)
    cdef int _key(self, RowReader reader, Py_ssize_t row) except -1
    @cython.locals(program=Program, node=cython.int, index=cython.int, flags=cython.int, high=cython.ulonglong, low=cython.ulonglong, at=cython.Py_ssize_t, end=cython.Py_ssize_t)
    cdef int _cells(self, RowReader reader) except -1


@cython.locals(node=cython.int, index=cython.int)
cpdef object plain_cells(Program program)
cpdef object plain_key(Program program)
@cython.locals(index=cython.int)
cdef object _plain_values(Program program, int node)
@cython.locals(kind=cython.int)
cdef int _plain_value(Program program, int value) except -1
@cython.locals(size=cython.int, step=cython.int)
cdef Py_ssize_t short_value(RowReader reader, Py_ssize_t at, int plain) except -2
@cython.locals(size=cython.Py_ssize_t)
cdef int append(RowBuffer out, RowReader reader, Py_ssize_t start, Py_ssize_t end) except -1
@cython.locals(buckets=cython.Py_ssize_t, rows=cython.Py_ssize_t, row=cython.Py_ssize_t, run=cython.Py_ssize_t, bucket=cython.Py_ssize_t)
cpdef list split_rows(RowReader reader, const long long[:, ::1] places, const unsigned char[:, ::1] marks, const unsigned long long[:, ::1] hashes, const unsigned char[::1] fresh, list outs)
cdef int _row_to(RowBuffer out, RowReader reader, const long long[:, ::1] places, Py_ssize_t row) except -1
@cython.locals(count=cython.Py_ssize_t, index=cython.Py_ssize_t, row=cython.Py_ssize_t)
cpdef pick_rows(RowReader reader, const long long[:, ::1] places, const long long[::1] chosen, RowBuffer out)

@cython.locals(count=cython.Py_ssize_t, last=cython.Py_ssize_t, row=cython.Py_ssize_t)
cpdef bint order_rows(const long long[::1] groups, const long long[::1] times, long long[::1] bounds, long long[::1] order) except -1
@cython.locals(last=cython.Py_ssize_t, row=cython.Py_ssize_t, group=cython.Py_ssize_t, place=cython.Py_ssize_t, first=cython.Py_ssize_t, at=cython.Py_ssize_t)
cdef int _order(Py_ssize_t count, const long long[::1] groups, const long long[::1] times, long long[::1] bounds, long long[::1] order) except -1


cdef int same_bytes(RowReader one, Py_ssize_t start, RowReader other, Py_ssize_t from_, Py_ssize_t size) except -1
