# The C types of _join.py.
import cython
from libc.stdint cimport int64_t

from penstock.formats._kernel cimport Program, RowBuffer, RowReader
from penstock.records._keys cimport append, fetch, same_bytes, short_value
from penstock.fold._parts cimport ABSENT, EXPIRING, LASTING, NEVER, OPAQUE, TOMBSTONE, RowParts, put_second, put_stamp, put_tombstone

cdef int _INSERT
cdef int _UPDATE
cdef int _DELETE
cdef int _DELETE_PARTITION
cdef int _SET
cdef int _DELETED
cdef int _KEY
cdef int _CELLS
cdef int _ODD
cdef int _AHEAD
cdef int _LINE


@cython.final
cdef class Joiner:
    cdef Program program
    cdef object tie
    cdef bint by_log
    cdef int cells
    cdef const unsigned char[::1] multi
    cdef const unsigned char[::1] plain
    cdef const long long[::1] floors
    cdef long long version
    cdef int commit_time
    cdef int origin
    cdef int range
    cdef int key
    cdef RowParts state
    cdef RowParts change
    cdef readonly RowBuffer out
    cdef readonly RowBuffer news
    cdef readonly Py_ssize_t records
    cdef readonly Py_ssize_t rows
    cdef readonly list clashes
    cdef RowReader changes
    cdef RowReader priors
    cdef const long long[:, ::1] places
    cdef const unsigned char[:, ::1] marks
    cdef const long long[::1] times
    cdef int unsure
    cdef long long[:, ::1] record_table
    cdef long long[:, ::1] row_table

    @cython.locals(groups=cython.Py_ssize_t, group=cython.Py_ssize_t, most=cython.Py_ssize_t, at=cython.Py_ssize_t)
    cpdef join(self, RowReader changes, const long long[:, ::1] places, const unsigned char[:, ::1] marks, const long long[::1] times, const long long[::1] order, const long long[::1] bounds, RowReader priors, const long long[::1] prior_starts, long long floor, long long now_s, bint every, long long[:, ::1] record_table, long long[:, ::1] row_table)
    @cython.locals(state=RowParts, last=cython.Py_ssize_t, record=cython.Py_ssize_t, first=cython.Py_ssize_t, stop=cython.Py_ssize_t, place=cython.Py_ssize_t, number=cython.Py_ssize_t)
    cdef int _group(self, const long long[::1] order, const long long[::1] bounds, Py_ssize_t group, long long prior, long long floor, long long now_s, bint every) except -1
    @cython.locals(start=cython.longlong)
    cdef int _come(self, const long long[::1] order, Py_ssize_t place) except -1
    @cython.locals(altered=cython.int)
    cdef int _joined(self, Py_ssize_t number, long long floor) except -1
    @cython.locals(state=RowParts, reader=RowReader, altered=cython.int, at=cython.Py_ssize_t, end=cython.Py_ssize_t, index=cython.int)
    cdef int _apply_plain(self, Py_ssize_t start, long long time, long long floor) except -1
    cdef int _pass(self, RowReader reader, int node) except -1
    @cython.locals(state=RowParts, change=RowParts, size=cython.Py_ssize_t)
    cdef int _same_row(self) except -1
    @cython.locals(record=cython.Py_ssize_t)
    cdef Py_ssize_t _record(self, Py_ssize_t number, Py_ssize_t previous) except -1
    @cython.locals(number=cython.Py_ssize_t)
    cpdef expire(self, RowReader priors, const long long[::1] starts, long long since_s, long long now_s, long long[:, ::1] record_table)
    @cython.locals(state=RowParts, latest=cython.longlong, second=cython.longlong, index=cython.int, record=cython.Py_ssize_t)
    cdef int _expire(self, Py_ssize_t number, long long since_s, long long now_s) except -1
    @cython.locals(out=RowBuffer, index=cython.int)
    cdef int _write_expiry(self, RowParts state, long long latest, long long since_s, long long now_s) except -1
    @cython.locals(program=Program, timed=cython.int, time=cython.longlong, version=cython.longlong, touched=cython.int, implied=cython.int)
    cdef int _parse(self, RowParts parts, RowReader reader, Py_ssize_t start, int is_state) except -1
    cdef int64_t _known(self, int timed, long long time) except? -1
    cdef int _parse_marker(self, RowParts parts, RowReader reader, int timed, long long time) except -1
    @cython.locals(program=Program, node=cython.int, touched=cython.int, index=cython.int, cell=cython.int, branch=cython.int, own=cython.int, end=cython.Py_ssize_t)
    cdef int _parse_cells(self, RowParts parts, RowReader reader, int timed, long long time, int source) except -1
    @cython.locals(state=RowParts, change=RowParts, altered=cython.int, greater=cython.bint, index=cython.int)
    cdef int _apply(self, long long floor) except -1
    @cython.locals(state=RowParts, change=RowParts, other=RowReader, size=cython.Py_ssize_t)
    cdef int _cell_wins(self, int index) except -1
    @cython.locals(out=RowBuffer, op=cython.int, index=cython.int, kind=cython.longlong, source=RowReader)
    cdef int _write(self, RowParts state) except -1
