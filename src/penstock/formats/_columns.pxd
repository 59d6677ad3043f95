# The C types of _columns.py.
import cython
from libc.stdint cimport int64_t
from libc.string cimport memcpy

from penstock.formats._kernel cimport (
    ARRAY, BIG, BOOLEAN, BYTES, DOUBLE, ENUM, FIXED, FLOAT, INT, LONG, NULLABLE, RECORD, STRING, UNION,
    Program, RowReader,
)

cpdef enum:
    STRUCT
    BITS
    WIDE
    VARIABLE
    LIST


@cython.final
cdef class Budget:
    cdef readonly long long left

    cpdef int spend(self, long long size) except -1


@cython.final
cdef class Column:
    cdef readonly int layout
    cdef readonly int width
    cdef readonly bint nullable
    cdef Py_ssize_t expected
    cdef Budget budget
    cdef readonly Py_ssize_t length
    cdef Py_ssize_t capacity
    cdef readonly Py_ssize_t used
    cdef Py_ssize_t room
    cdef readonly bytearray valid_store
    cdef readonly bytearray data_store
    cdef readonly bytearray offset_store
    cdef unsigned char[::1] valid
    cdef unsigned char[::1] data
    cdef int[::1] offsets

    @cython.locals(capacity=cython.Py_ssize_t)
    cdef int _grow(self, Py_ssize_t wanted) except -1
    cdef bytearray _enlarge(self, bytearray old, Py_ssize_t size)
    cdef int place(self, Py_ssize_t index) except -1
    @cython.locals(at=cython.Py_ssize_t, end=cython.int)
    cdef int _pad(self, Py_ssize_t index) except -1
    @cython.locals(at=cython.Py_ssize_t, width=cython.int)
    cdef int put_integer(self, Py_ssize_t index, long long value) except -1
    cdef int put_boolean(self, Py_ssize_t index, int value) except -1
    @cython.locals(at=cython.Py_ssize_t, start=cython.Py_ssize_t, width=cython.int)
    cdef int put_wide(self, Py_ssize_t index, RowReader reader) except -1
    cdef int put_variable(self, Py_ssize_t index, RowReader reader, Py_ssize_t start, Py_ssize_t size) except -1
    cdef int _grow_data(self, Py_ssize_t size) except -1
    @cython.locals(start=cython.Py_ssize_t, size=cython.longlong, at=cython.Py_ssize_t, step=cython.Py_ssize_t, negative=cython.bint)
    cdef int put_big(self, Py_ssize_t index, RowReader reader, int unsigned) except -1
    cdef int close_list(self, Py_ssize_t index, Py_ssize_t items) except -1
    cpdef bint finish(self, Py_ssize_t length) except *


@cython.locals(at=cython.Py_ssize_t, end=cython.Py_ssize_t, byte=cython.uint, low=cython.uint, high=cython.uint, more=cython.Py_ssize_t, word=cython.ulonglong, high_bits=cython.ulonglong)
cdef int check_utf8(RowReader reader, Py_ssize_t start, Py_ssize_t size) except -1


@cython.final
cdef class ColumnReader:
    cdef Program program
    cdef const int[::1] targets
    cdef list columns

    cpdef read_rows(self, RowReader reader, Py_ssize_t count)
    @cython.locals(program=Program, at=cython.Py_ssize_t, end=cython.Py_ssize_t, index=cython.Py_ssize_t, node=cython.int, target=cython.int, kind=cython.int, byte=cython.longlong, value=cython.longlong)
    cdef int read(self, RowReader reader, int start, Py_ssize_t first, Py_ssize_t count) except -1
    cdef int _read_bytes(self, RowReader reader, Py_ssize_t at, long long size, int kind, int target, Py_ssize_t index) except -1
    cdef int _refuse(self, RowReader reader, Py_ssize_t at, int kind) except -1
    @cython.locals(program=Program, kind=cython.int, column=Column)
    cdef int _read_other(self, RowReader reader, int node, int target, Py_ssize_t index) except -2
    @cython.locals(program=Program, child=cython.int, column=Column, items=cython.Py_ssize_t, count=cython.longlong)
    cdef int _read_array(self, RowReader reader, int node, int target, Py_ssize_t index) except -1
