# The C types of _identity.py.
import cython

from penstock.formats._rows cimport Input
from penstock.formats._output cimport Output


@cython.final
cdef class Identities:
    cdef Input node
    cdef Input file
    cdef Input position
    cdef Input ordinal
    cdef Output out

    @cython.locals(starts=cython.int[::1], number=cython.Py_ssize_t)
    cpdef write(self, Py_ssize_t first, Py_ssize_t count, bytes suffix, offsets)
    @cython.locals(start=cython.Py_ssize_t, size=cython.Py_ssize_t)
    cdef int text(self, Input source, Py_ssize_t index) except -1
    cdef int integer(self, Input source, Py_ssize_t index) except -1
