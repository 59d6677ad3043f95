# The C types of _tree.py.
import cython
from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.stdint cimport int64_t
from libc.string cimport memcpy

from penstock.formats._rows cimport Input
from penstock.formats._output cimport Output

cpdef enum:
    CONST
    STRUCT
    LIST
    MAP
    BOOL
    INT
    FLOAT
    DOUBLE
    STRING
    BYTES
    UUID
    INET
    WORD
    VARINT_LONG
    VARINT_TEXT
    DECIMAL_DOUBLE
    DECIMAL_TEXT
    DURATION
    CELL
    KEY_CELL
    FIELD_DELTA
    COUNTER_DELTA

cpdef enum:
    OPTIONAL = 1
    SHARED = 2
    OBJECT = 4

cpdef enum:
    ABSENT
    VALUE
    GONE
    DELTA

cpdef enum:
    DELETE = 2
    DELETE_PARTITION = 3

cpdef enum:
    OPERATIONS
    DELETIONS


cdef struct View:
    # NULL where every entry is valid.
    const unsigned char *valid
    const unsigned char *data
    const int *offsets
    Py_ssize_t length
    Py_ssize_t offset
    Py_ssize_t bytes
    int width
    bint is_signed

ctypedef View *ViewPlace


cdef class Tree:
    cdef const int[::1] kinds
    cdef const int[::1] flags
    cdef const int[::1] first
    cdef const int[::1] counts
    cdef const int[::1] children
    cdef const int[::1] sources
    cdef const int[::1] prefixes
    cdef const int[::1] suffixes
    cdef const int[::1] words
    cdef const long long[::1] factors
    cdef const long long[::1] divisors
    cdef const unsigned char[::1] pool
    cdef const int[::1] starts
    cdef list inputs
    cdef bytearray room
    cdef View *views
    cdef Py_ssize_t inputs_wanted
    cdef Output out
    cdef Py_ssize_t row
    cdef long long operation
    cdef long long deletion
    cdef bint deletion_known
    cdef long long unscaled
    cdef long long scale
    cdef readonly list refused

    @cython.locals(number=cython.Py_ssize_t)
    cpdef object render(self, list inputs, Py_ssize_t first, Py_ssize_t count, object offsets, Py_ssize_t expected)
    @cython.locals(view=ViewPlace)
    cdef int _bind(self, Py_ssize_t number, Input source) except -1
    @cython.locals(out=Output, number=cython.Py_ssize_t, begin=cython.Py_ssize_t)
    cdef int _records(self, int[::1] starts, Py_ssize_t first, Py_ssize_t count) except -1
    cdef int write(self, int node, Py_ssize_t index) except -1
    @cython.locals(start=cython.Py_ssize_t)
    cdef int literal(self, int number) except -1
    cdef int child(self, int node, int step) except -1
    cdef Input source(self, int node)
    @cython.locals(view=ViewPlace)
    cdef View *view(self, int node, Py_ssize_t index) except NULL
    @cython.locals(view=ViewPlace, at=cython.Py_ssize_t)
    cdef int present(self, int node, Py_ssize_t index) except -1
    @cython.locals(view=ViewPlace, value=int64_t)
    cdef int64_t stored(self, int node, Py_ssize_t index) except? -1
    cdef int truth(self, int node, Py_ssize_t index) except -1
    cdef const unsigned char *data(self, int node) noexcept
    @cython.locals(value=cython.longlong, factor=cython.longlong, divisor=cython.longlong)
    cdef int64_t integer(self, int node, Py_ssize_t index) except? -1
    @cython.locals(view=ViewPlace, kind=cython.int, counted=cython.bint, at=cython.Py_ssize_t, start=cython.Py_ssize_t, stop=cython.Py_ssize_t)
    cdef Py_ssize_t begin(self, int node, Py_ssize_t index) except -1
    @cython.locals(view=ViewPlace)
    cdef Py_ssize_t end(self, int node, Py_ssize_t index) except -1
    @cython.locals(source=Input)
    cdef Py_ssize_t place(self, int node, Py_ssize_t index, int width) except -1
    @cython.locals(start=cython.Py_ssize_t)
    cdef bytes blob(self, int node, Py_ssize_t index)
    @cython.locals(source=Input, start=cython.Py_ssize_t, size=cython.Py_ssize_t, step=cython.Py_ssize_t, value=cython.longlong, byte=cython.longlong)
    cdef int64_t varint_long(self, int node, Py_ssize_t index) except? -1
    cdef bytes varint_text(self, int node, Py_ssize_t index)
    cdef object decimal(self, int node, Py_ssize_t index)
    cdef double decimal_double(self, int node, Py_ssize_t index) except? -1
    @cython.locals(child=cython.int)
    cdef int is_short_decimal(self, int node, Py_ssize_t index) except -1
    cdef int decimal_number(self, int node, Py_ssize_t index) except -1
    @cython.locals(power=cython.longlong, rest=cython.longlong)
    cdef int fixed_point(self) except -1
    cdef int decimal_text(self, int node, Py_ssize_t index) except -1
    @cython.locals(source=Input, start=cython.Py_ssize_t, size=cython.Py_ssize_t, step=cython.Py_ssize_t, last=cython.uint, byte=cython.uint, whole=cython.bint)
    cdef int float_number(self, int node, Py_ssize_t index, int quote) except -1
    cdef int no_number(self, int sign, int last, int quote) except -1
    @cython.locals(source=Input, start=cython.Py_ssize_t, size=cython.Py_ssize_t, step=cython.int)
    cdef int inet_text(self, int node, Py_ssize_t index) except -1
    @cython.locals(months=cython.longlong, days=cython.longlong, rest=cython.longlong, whole=cython.longlong)
    cdef int64_t nanoseconds(self, int node, Py_ssize_t index) except? -1
    @cython.locals(operation=cython.longlong, state=cython.longlong, seconds=cython.longlong, expiry=cython.int, delta=cython.int)
    cdef int cell(self, int node, Py_ssize_t index) except -1
    @cython.locals(deletion=Input)
    cdef int gone(self) except -1
    @cython.locals(at=cython.Py_ssize_t, start=cython.Py_ssize_t, path=cython.int)
    cdef Py_ssize_t find_field(self, int node, Py_ssize_t index, int field) except? -2
    @cython.locals(total=cython.longlong, at=cython.Py_ssize_t)
    cdef int64_t shard_sum(self, int node, Py_ssize_t index) except? -1
