# The C types of _json_values.py.
import cython
from libc.stdint cimport int64_t

from penstock.formats._kernel cimport Program, RowReader
from penstock.formats._output cimport Output

cpdef enum:
    TEXT
    NUMBER
    TRUTH
    IDENTIFIER
    BINARY
    DATE
    CLOCK
    INSTANT
    WALL_CLOCK
    REAL
    INTEGER
    FIXED_DECIMAL
    DECIMAL
    ADDRESS
    ITEMS
    TUPLE
    OBJECT
    OBJECTS

cdef long long _DAY_MIN, _DAY_MAX, _DAYS_BEFORE, _DAY_S


cdef class JsonValues:
    cdef Program program
    cdef Output out
    cdef Output nowhere
    cdef const int[::1] kinds
    cdef const int[::1] avro
    cdef const int[::1] first
    cdef const int[::1] counts
    cdef const int[::1] children
    cdef const int[::1] names
    cdef const int[::1] makers_of
    cdef const long long[::1] numbers
    cdef const long long[::1] limits
    cdef list literals
    cdef list makers
    cdef object quote

    cdef int member(self, RowReader reader, int node) except -1
    cdef int member_or_null(self, RowReader reader, int node) except -1
    cdef int value_or_null(self, RowReader reader, int node) except -1
    @cython.locals(value=cython.longlong)
    cdef int64_t int32(self, RowReader reader) except? -1
    @cython.locals(kind=cython.int)
    cdef int value(self, RowReader reader, int node) except -1
    cdef int _made(self, RowReader reader, int node) except -1
    @cython.locals(out=Output, size=cython.longlong, at=cython.Py_ssize_t)
    cdef int text(self, RowReader reader) except -1
    cdef object _quoted(self, RowReader reader, Py_ssize_t at, Py_ssize_t size)
    @cython.locals(out=Output, size=cython.longlong, at=cython.Py_ssize_t)
    cdef int _bytes(self, RowReader reader, int node) except -1
    cdef int _real(self, RowReader reader, int node) except -1
    @cython.locals(value=cython.longlong, per_s=cython.longlong, per_day=cython.longlong, days=cython.longlong, rest=cython.longlong)
    cdef int _instant(self, RowReader reader, int node) except -1
    @cython.locals(out=Output, value=cython.longlong, per_s=cython.longlong)
    cdef int _date_or_clock(self, RowReader reader, int node) except -1
    @cython.locals(out=Output, since=cython.longlong, era=cython.longlong, day=cython.longlong, year=cython.longlong, month=cython.longlong)
    cdef int _day(self, long long days) except -1
    @cython.locals(out=Output, seconds=cython.longlong)
    cdef int _clock(self, long long units, long long per_s) except -1
    @cython.locals(value=cython.longlong, step=cython.int)
    cdef int64_t _big_endian(self, RowReader reader, Py_ssize_t at, long long size) except? -1
    @cython.locals(start=cython.Py_ssize_t, at=cython.Py_ssize_t, size=cython.longlong, value=cython.longlong, step=cython.int)
    cdef int _integer_or_address(self, RowReader reader, int node) except -1
    @cython.locals(start=cython.Py_ssize_t, at=cython.Py_ssize_t, size=cython.longlong, scale=cython.longlong, unscaled=cython.longlong)
    cdef int _decimal(self, RowReader reader, int node) except -1
    @cython.locals(out=Output, rest=cython.ulonglong, power=cython.ulonglong)
    cdef int _plain_decimal(self, long long unscaled, int scale, unsigned long long limit) except -1
    @cython.locals(out=Output, begin=cython.Py_ssize_t, child=cython.int, least=cython.longlong, found=cython.longlong, count=cython.longlong)
    cdef int _items(self, RowReader reader, int node) except -1
    @cython.locals(out=Output, begin=cython.Py_ssize_t, named=cython.int, step=cython.int, child=cython.int)
    cdef int _fields(self, RowReader reader, int node) except -1
