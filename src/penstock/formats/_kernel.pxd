# The C types of _kernel.py. Native decoders cimport RowBuffer from here to write rows without Python objects.
import cython
from cpython.bytearray cimport PyByteArray_FromStringAndSize
from libc.stdint cimport int64_t

cpdef enum:
    NULL
    BOOLEAN
    INT
    LONG
    FLOAT
    DOUBLE
    BYTES
    STRING
    FIXED
    ENUM
    ARRAY
    UNION
    RECORD
    NULLABLE
    BIG


cdef bytearray room(Py_ssize_t size)


@cython.final
cdef class RowBuffer:
    cdef bytearray store
    cdef unsigned char[::1] data
    cdef Py_ssize_t capacity
    cdef readonly Py_ssize_t size

    cpdef int reserve(self, Py_ssize_t extra) except -1
    cdef int _grow(self, Py_ssize_t extra) except -1
    cpdef int put_byte(self, unsigned char value) except -1
    @cython.locals(rest=cython.ulonglong, at=cython.Py_ssize_t)
    cpdef int put_long(self, long long value) except -1
    cpdef int put_bytes(self, bytes value) except -1
    @cython.locals(size=cython.Py_ssize_t)
    cpdef int put_raw(self, bytes value) except -1
    cpdef int put_float(self, double value) except -1
    cpdef int put_double(self, double value) except -1


@cython.final
cdef class RowReader:
    cdef object source
    cdef const unsigned char[::1] data
    cdef readonly Py_ssize_t position
    cdef readonly Py_ssize_t end

    cdef int fail(self, str message) except -1
    @cython.locals(value=cython.uchar)
    cdef int read_byte(self) except -1
    @cython.locals(at=cython.Py_ssize_t, byte=cython.longlong, rest=cython.ulonglong, part=cython.ulonglong, shift=cython.int)
    cdef int64_t read_long(self) except? -1
    @cython.locals(branch=cython.longlong, byte=cython.uint)
    cdef int read_present(self) except -1
    @cython.locals(at=cython.Py_ssize_t)
    cdef Py_ssize_t take(self, long long size) except -1
    @cython.locals(count=cython.longlong, size=cython.longlong)
    cdef int64_t read_count(self, long long least) except -1


@cython.final
cdef class Program:
    cdef const int[::1] kinds
    cdef const int[::1] first
    cdef const int[::1] counts
    cdef const int[::1] children
    cdef const long long[::1] low
    cdef const long long[::1] high
    cdef const long long[::1] least
    cdef const int[::1] then

    cpdef Py_ssize_t size(self)
    cpdef long long least_bytes(self)
    @cython.locals(size=cython.Py_ssize_t)
    cpdef encode(self, RowBuffer out, object datum)
    cpdef object decode(self, RowReader reader)
    cdef int child(self, int node, int index) except -1
    @cython.locals(kind=cython.int)
    cdef int write(self, RowBuffer out, int node, object datum) except -1
    @cython.locals(count=cython.int, index=cython.int)
    cdef int _write_record(self, RowBuffer out, int node, object datum) except -1
    @cython.locals(value=cython.longlong, low=cython.longlong, high=cython.longlong)
    cdef int _write_integer(self, RowBuffer out, int node, object datum) except -1
    @cython.locals(branch=cython.longlong)
    cdef int _write_union(self, RowBuffer out, int node, object datum) except -1
    @cython.locals(child=cython.int)
    cdef int _write_array(self, RowBuffer out, int node, object datum) except -1
    @cython.locals(kind=cython.int)
    cdef int _write_fixed(self, RowBuffer out, int node, object datum) except -1
    @cython.locals(kind=cython.int, branch=cython.longlong, index=cython.int, size=cython.longlong, at=cython.Py_ssize_t)
    cdef object read(self, RowReader reader, int node)
    @cython.locals(value=cython.longlong, low=cython.longlong, high=cython.longlong)
    cdef int64_t read_integer(self, RowReader reader, int node) except? -1
    @cython.locals(branch=cython.longlong)
    cdef int read_branch(self, RowReader reader, int node) except -1
    @cython.locals(size=cython.longlong, at=cython.Py_ssize_t)
    cdef object _read_string(self, RowReader reader)
    @cython.locals(child=cython.int, count=cython.longlong)
    cdef object _read_array(self, RowReader reader, int node)
    @cython.locals(kind=cython.int, size=cython.longlong, at=cython.Py_ssize_t)
    cdef object _read_fixed(self, RowReader reader, int node)
    cdef int read_boolean(self, RowReader reader) except -1
    @cython.locals(kind=cython.int, stop=cython.int, at=cython.Py_ssize_t, end=cython.Py_ssize_t, byte=cython.longlong, value=cython.longlong)
    cdef int skip(self, RowReader reader, int node) except -1
    @cython.locals(kind=cython.int, branch=cython.longlong, child=cython.int, count=cython.longlong)
    cdef int _skip_other(self, RowReader reader, int node) except -2
    cpdef skip_rows(self, RowReader reader, Py_ssize_t count)
    @cython.locals(row=cython.Py_ssize_t, index=cython.int, last=cython.int)
    cpdef bounds(self, RowReader reader, long long[::1] starts, long long[::1] tails, Py_ssize_t count)


@cython.final
cdef class Scanner:
    cdef Program program
    cdef readonly bint time_seen
    cdef readonly long long time_max
    cdef readonly list marks
    cdef dict _sequences

    @cython.locals(row=cython.Py_ssize_t, index=cython.int, fields=cython.int, program=Program)
    cpdef scan(self, RowReader reader, Py_ssize_t count)
    @cython.locals(found=cython.int, when=cython.longlong, capture=cython.longlong)
    cdef int _times(self, RowReader reader) except -1
    @cython.locals(size=cython.longlong, at=cython.Py_ssize_t)
    cdef int _origin(self, RowReader reader, Py_ssize_t row) except -1
    cdef int _transaction(self, object domain, long long sequence, Py_ssize_t row) except -1
