# The C types of _protobuf.py.
import cython

from penstock.formats._rows cimport Input
from penstock.formats._output cimport Output
from penstock.envelopes._tree cimport (
    ABSENT, BOOL, BYTES, CELL, CONST, COUNTER_DELTA, DECIMAL_DOUBLE, DECIMAL_TEXT, DELTA, DOUBLE, DURATION, FIELD_DELTA,
    FLOAT, INET, INT, KEY_CELL, LIST, MAP, STRING, STRUCT, UUID, VALUE, VARINT_LONG, VARINT_TEXT, WORD,
    Tree,
)


cdef class Protobuf(Tree):
    @cython.locals(step=cython.int, skip=cython.int, at=cython.Py_ssize_t)
    cdef int write(self, int node, Py_ssize_t index) except -1
    @cython.locals(kind=cython.int)
    cdef int write_field(self, int node, Py_ssize_t index) except -1
    @cython.locals(kind=cython.int, begin=cython.Py_ssize_t)
    cdef int write_value(self, int node, Py_ssize_t index) except -1
    @cython.locals(kind=cython.int, start=cython.Py_ssize_t)
    cdef int write_sized(self, int node, Py_ssize_t index) except -1
    @cython.locals(at=cython.Py_ssize_t, begin=cython.Py_ssize_t)
    cdef int write_items(self, int node, Py_ssize_t index) except -1
    @cython.locals(found=cython.int, known=cython.bint, deletion=cython.longlong, begin=cython.Py_ssize_t)
    cdef int write_cell(self, int node, Py_ssize_t index) except -1
