# The C types of _rows.py.
import cython
from libc.stdint cimport int64_t
from libc.string cimport memcpy

from penstock.formats._kernel cimport (
    ARRAY, BIG, BOOLEAN, BYTES, DOUBLE, ENUM, FIXED, FLOAT, INT, LONG, NULLABLE, RECORD, STRING, UNION,
    Program, RowBuffer,
)


@cython.final
cdef class Input:
    cdef Py_ssize_t length
    cdef Py_ssize_t offset
    cdef int width
    cdef bint signed
    cdef bint has_valid
    cdef const unsigned char[::1] valid
    cdef const unsigned char[::1] data
    cdef const int[::1] offsets

    cdef int check(self, Py_ssize_t index) except -1
    @cython.locals(at=cython.Py_ssize_t)
    cdef int is_valid(self, Py_ssize_t index) except -1
    @cython.locals(at=cython.Py_ssize_t, width=cython.int, bits=cython.ulonglong, value=cython.longlong, half=cython.longlong)
    cdef int64_t integer(self, Py_ssize_t index) except? -1
    @cython.locals(at=cython.Py_ssize_t)
    cdef int boolean(self, Py_ssize_t index) except -1
    @cython.locals(at=cython.Py_ssize_t, start=cython.int)
    cdef int start(self, Py_ssize_t index, Py_ssize_t limit) except -1
    cdef int stop(self, Py_ssize_t index) except -1


@cython.final
cdef class RowsOfColumns:
    cdef Program program
    cdef const int[::1] targets
    cdef const int[::1] probe_first
    cdef const int[::1] probes
    cdef list inputs

    @cython.locals(row=cython.Py_ssize_t)
    cpdef write_rows(self, RowBuffer out, Py_ssize_t start, Py_ssize_t stop)
    @cython.locals(step=cython.int)
    cdef int present(self, int node, Py_ssize_t index) except -1
    @cython.locals(program=Program, kind=cython.int, target=cython.int, step=cython.int, branch=cython.longlong)
    cdef int write(self, RowBuffer out, int node, Py_ssize_t index) except -1
    cdef int _require(self, int target, Py_ssize_t index) except -1
    @cython.locals(value=cython.longlong, low=cython.longlong, high=cython.longlong)
    cdef int _write_integer(self, RowBuffer out, int node, int target, Py_ssize_t index) except -1
    @cython.locals(source=Input, start=cython.Py_ssize_t, size=cython.Py_ssize_t)
    cdef int _write_variable(self, RowBuffer out, int target, Py_ssize_t index) except -1
    @cython.locals(source=Input)
    cdef int _write_wide(self, RowBuffer out, int target, Py_ssize_t index) except -1
    cdef int _copy(self, RowBuffer out, Input source, Py_ssize_t start, Py_ssize_t size) except -1
    @cython.locals(source=Input, at=cython.Py_ssize_t, size=cython.Py_ssize_t, step=cython.Py_ssize_t, filler=cython.int, lead=cython.int)
    cdef int _write_big(self, RowBuffer out, int target, Py_ssize_t index, int unsigned) except -1
    @cython.locals(source=Input, child=cython.int, start=cython.Py_ssize_t, stop=cython.Py_ssize_t, item=cython.Py_ssize_t)
    cdef int _write_array(self, RowBuffer out, int node, int target, Py_ssize_t index) except -1
    cdef Input input(self, int target)
