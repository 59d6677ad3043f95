# The C types of _java_text.py.
import cython

from penstock.formats._rows cimport Input
from penstock.formats._output cimport Output
from penstock.envelopes._tree cimport (
    ABSENT, BOOL, BYTES, CELL, CONST, COUNTER_DELTA, DECIMAL_DOUBLE, DECIMAL_TEXT, DELTA, DOUBLE, DURATION, FIELD_DELTA,
    FLOAT, INET, INT, KEY_CELL, LIST, MAP, STRING, STRUCT, UUID, VALUE, VARINT_LONG, VARINT_TEXT, WORD,
    Tree,
)


cdef class JavaText(Tree):
    @cython.locals(kind=cython.int, start=cython.Py_ssize_t)
    cdef int write(self, int node, Py_ssize_t index) except -1
    @cython.locals(step=cython.int, child=cython.int, skip=cython.int, begun=cython.bint, at=cython.Py_ssize_t)
    cdef int write_struct(self, int node, Py_ssize_t index) except -1
    @cython.locals(kind=cython.int)
    cdef int has_text(self, int node, Py_ssize_t index) except -1
    @cython.locals(kind=cython.int, start=cython.Py_ssize_t)
    cdef int write_plain(self, int node, Py_ssize_t index) except -1
    cdef int write_double(self, double value) except -1
    @cython.locals(start=cython.Py_ssize_t, at=cython.Py_ssize_t, pairs=cython.bint)
    cdef int write_items(self, int node, Py_ssize_t index) except -1
    @cython.locals(found=cython.int, known=cython.bint, deletion=cython.longlong, value=cython.int)
    cdef int write_cell(self, int node, Py_ssize_t index) except -1
