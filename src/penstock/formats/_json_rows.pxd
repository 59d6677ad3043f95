# The C types of _json_rows.py.
import cython

from penstock.formats._json_values cimport JsonValues
from penstock.formats._kernel cimport Program, RowReader
from penstock.formats._output cimport Output

cdef int _OP, _TIME, _COMMIT_TIME, _CAPTURE_TIME, _ORIGIN, _MARKER, _DELETION, _RANGE, _KEY, _CELLS, _BEFORE, _SEAL
cdef int _ABSENT, _SET, _DELETED, _DELTA


@cython.final
cdef class JsonRows(JsonValues):
    cdef const int[::1] columns
    cdef const int[::1] deltas
    cdef int key
    cdef int cells
    cdef int clustering
    cdef int before

    @cython.locals(out=Output)
    cpdef object render(self, RowReader reader, Py_ssize_t count, bytes begin, long long ordinal, bytes head, bytes end)
    @cython.locals(out=Output, number=cython.Py_ssize_t)
    cdef int _lines(self, RowReader reader, Py_ssize_t count, bytes begin, long long ordinal, bytes head, bytes end) except -1
    @cython.locals(program=Program, out=Output, origin=cython.Py_ssize_t, marker=cython.Py_ssize_t, deletion=cython.Py_ssize_t, bounds=cython.Py_ssize_t, end=cython.Py_ssize_t)
    cdef int _change(self, RowReader reader) except -1
    cdef int _optional(self, RowReader reader, bytes name) except -1
    @cython.locals(begin=cython.Py_ssize_t, step=cython.int)
    cdef int _key(self, RowReader reader) except -1
    @cython.locals(out=Output, start=cython.Py_ssize_t, begin=cython.Py_ssize_t, step=cython.int, node=cython.int, branch=cython.longlong)
    cdef int _cells(self, RowReader reader) except -1
    cdef int _stamp(self, RowReader reader) except -1
    cdef int _life(self, RowReader reader) except -1
    @cython.locals(begin=cython.Py_ssize_t)
    cdef int _deletion(self, RowReader reader) except -1
    @cython.locals(out=Output, start=cython.Py_ssize_t, begin=cython.Py_ssize_t, count=cython.longlong, field=cython.int)
    cdef int _delta(self, RowReader reader, int node, int path, int item) except -1
    @cython.locals(out=Output, start=cython.Py_ssize_t, begin=cython.Py_ssize_t, count=cython.longlong)
    cdef int _removed(self, RowReader reader, int node, int path) except -1
    @cython.locals(field=cython.longlong, name=bytes)
    cdef int _path(self, RowReader reader, int node, int path) except -2
    @cython.locals(step=cython.int, child=cython.int)
    cdef int _field(self, RowReader reader, int node, int field) except -1
    @cython.locals(begin=cython.Py_ssize_t)
    cdef int _marker(self, RowReader reader) except -1
    @cython.locals(begin=cython.Py_ssize_t)
    cdef int _range(self, RowReader reader) except -1
    @cython.locals(out=Output, begin=cython.Py_ssize_t, count=cython.longlong, inclusive=cython.int, step=cython.int, node=cython.int)
    cdef int _bound(self, RowReader reader) except -1
    @cython.locals(begin=cython.Py_ssize_t, step=cython.int)
    cdef int _before(self, RowReader reader) except -1
    @cython.locals(out=Output, start=cython.Py_ssize_t, begin=cython.Py_ssize_t, transaction=cython.Py_ssize_t, present=cython.int)
    cdef int _origin(self, RowReader reader) except -1
    cdef int _optional_text(self, RowReader reader, bytes name) except -1
