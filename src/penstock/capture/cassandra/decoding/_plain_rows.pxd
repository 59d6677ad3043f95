# The C types of _plain_rows.py.
import cython

from penstock.capture.cassandra.decoding._cells cimport (
    CELL_BYTES_MORE, LINE, LIVE, LOCAL, NOTHING, SET_CELLS, SIZE, STATE, TIME, TTL,
    AT, CellReader, ColumnList, TablePlan,
)
from penstock.capture.cassandra.decoding._values cimport (
    BYTES, NO_TIME, TEXT,
    copy, counted, fill, put_deleted, put_deletion, put_long, put_scalar, put_scalar_here, put_stamp, signed64, vint_bytes, vint_value,
)
from penstock.formats._kernel cimport RowBuffer

cdef enum:
    INSERT = 0
    UPDATE = 2

cdef enum:
    ELEMENTS_MAX = 64


cdef class PlainRows(CellReader):
    cdef int[::1] chosen_view
    cdef long long[::1] places_view
    cdef int *chosen
    cdef long long *places
    cdef RowBuffer front
    cdef RowBuffer key
    cdef long long ordinal
    cdef Py_ssize_t ceiling

    cdef int make_room(self, TablePlan plan) except -1
    @cython.locals(start=cython.Py_ssize_t, size=cython.Py_ssize_t, time=cython.longlong, pos=cython.Py_ssize_t,
                   rows=RowBuffer, cells="const int *")
    cdef bint write_plain(self, TablePlan plan, ColumnList columns, Py_ssize_t count, bint static, bint with_deletions) except -1
    @cython.locals(at=cython.Py_ssize_t, step=cython.Py_ssize_t, problem=cython.int)
    cdef long long first_time(self, TablePlan plan, int cell, bint with_deletions) noexcept
    @cython.locals(rows=RowBuffer, front=RowBuffer, key=RowBuffer, out="unsigned char *", source="unsigned char *",
                   pos=cython.Py_ssize_t, index=cython.int, size=cython.Py_ssize_t, kind=cython.int,
                   places="long long *")
    cdef Py_ssize_t put_head(self, TablePlan plan, bint static, long long time) except -2
    @cython.locals(front=RowBuffer, source="unsigned char *")
    cdef Py_ssize_t put_front(self, unsigned char *out, Py_ssize_t pos, int operation, long long time) noexcept
    @cython.locals(src="const unsigned char *", at=cython.Py_ssize_t, end=cython.Py_ssize_t, out="unsigned char *",
                   following=cython.int, index=cython.Py_ssize_t, cell=cython.int, kind=cython.int, flags=cython.int,
                   own=cython.longlong, step=cython.Py_ssize_t, size=cython.Py_ssize_t, marker=cython.longlong)
    cdef Py_ssize_t put_cells(self, TablePlan plan, const int *cells, Py_ssize_t count, Py_ssize_t pos, long long time, bint with_deletions) except -2
    @cython.locals(local=cython.longlong, ttl=cython.longlong, size=cython.Py_ssize_t, kind=cython.int)
    cdef Py_ssize_t put_expiring(self, TablePlan plan, int cell, unsigned char *out, Py_ssize_t pos, long long own, long long time, int flags) noexcept
    @cython.locals(rows=RowBuffer, deleted=cython.longlong, local=cython.longlong, count=cython.ulonglong,
                   out="unsigned char *", place=cython.Py_ssize_t, scratch="long long *", _=cython.ulonglong,
                   size=cython.Py_ssize_t, kind=cython.int, path_kind=cython.int)
    cdef Py_ssize_t put_delta(self, TablePlan plan, int cell, Py_ssize_t pos, long long time, bint with_deletion) except -2
