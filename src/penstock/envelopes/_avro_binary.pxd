# The C types of _avro_binary.py.
import cython

from penstock.formats._rows cimport Input
from penstock.formats._output cimport Output
from penstock.envelopes._tree cimport (
    ABSENT, BOOL, BYTES, CELL, COUNTER_DELTA, DECIMAL_DOUBLE, DECIMAL_TEXT, DELTA, DOUBLE, DURATION, FIELD_DELTA, FLOAT,
    INET, INT, KEY_CELL, LIST, MAP, OPTIONAL, STRING, STRUCT, UUID, VALUE, VARINT_LONG, VARINT_TEXT, WORD,
    Tree,
)


cdef class AvroBinary(Tree):
    @cython.locals(kind=cython.int)
    cdef int write(self, int node, Py_ssize_t index) except -1
    @cython.locals(step=cython.int, child=cython.int)
    cdef int write_struct(self, int node, Py_ssize_t index) except -1
    @cython.locals(start=cython.Py_ssize_t, size=cython.Py_ssize_t)
    cdef int write_bytes(self, int node, Py_ssize_t index) except -1
    @cython.locals(kind=cython.int, begin=cython.Py_ssize_t)
    cdef int write_plain(self, int node, Py_ssize_t index) except -1
    @cython.locals(value=cython.double, power=cython.double)
    cdef int write_decimal(self, int node, Py_ssize_t index) except -1
    @cython.locals(start=cython.Py_ssize_t, stop=cython.Py_ssize_t, at=cython.Py_ssize_t)
    cdef int write_items(self, int node, Py_ssize_t index) except -1
    @cython.locals(found=cython.int, known=cython.bint, deletion=cython.longlong)
    cdef int write_cell(self, int node, Py_ssize_t index) except -1
    @cython.locals(field=cython.int, at=cython.Py_ssize_t)
    cdef int write_fields(self, int node, Py_ssize_t index) except -1
