# The C types of _updates.py.
import cython

from penstock.capture.cassandra.decoding._cells cimport (
    ABSENT, CELL_BYTES_MORE, COUNTER_CELL, DELTA, LINE, NOTHING, ODD_COLUMNS, ODD_FLAGS, ODD_RANGES, SHORT, SIMPLE, STATE, TIME, TOO_LARGE,
    UNFIT, UNKNOWN_COLUMN,
    ColumnList, TablePlan,
)
from penstock.capture.cassandra.decoding._plain_rows cimport INSERT, UPDATE, PlainRows
from penstock.capture.cassandra.decoding._values cimport (
    EPOCH_S, EPOCH_US, NO_TIME, copy, counted, fill, put_deletion, put_scalar, same, vint_bytes, vint_value,
)
from penstock.formats._kernel cimport RowBuffer

cdef enum:
    ALL
    RANGES
    ROWS

cdef enum:
    DELETE = 4
    DELETE_PARTITION = 6
    DELETE_RANGE = 8

cdef enum:
    LISTS_MAX = 16


cdef class UpdateReader(PlainRows):
    cdef RowBuffer bound
    cdef bint range_open
    cdef long long range_time
    cdef long long range_local
    cdef readonly bytes unknown
    cdef readonly bint unknown_static

    @cython.locals(key_size=cython.Py_ssize_t, key_at=cython.Py_ssize_t, step=cython.Py_ssize_t, flags=cython.int, statics=ColumnList,
                   regulars=ColumnList)
    cdef int read_partition(self, TablePlan plan) except -1
    @cython.locals(at=cython.Py_ssize_t, size=cython.Py_ssize_t, count=cython.Py_ssize_t, when=cython.longlong,
                   ordinal=cython.longlong)
    cdef int read_rows(self, TablePlan plan, ColumnList statics, ColumnList regulars) except -1
    @cython.locals(flags=cython.int, more=cython.int)
    cdef int read_pass(self, TablePlan plan, ColumnList statics, ColumnList regulars, int part) except -1
    @cython.locals(known=list, columns=ColumnList)
    cdef ColumnList read_list(self, TablePlan plan, bint static)
    @cython.locals(start=cython.Py_ssize_t, size=cython.Py_ssize_t, numbers=dict, cells=list, _=cython.ulonglong)
    cdef ColumnList read_names(self, TablePlan plan, bint static, list known)
    @cython.locals(key=RowBuffer, end=cython.Py_ssize_t, index=cython.int, length=cython.Py_ssize_t)
    cdef int write_key(self, TablePlan plan, Py_ssize_t at, Py_ssize_t size) except -1
    @cython.locals(index=cython.int, header=cython.ulonglong, size=cython.Py_ssize_t, places="long long *")
    cdef int read_clustering(self, TablePlan plan, int count) noexcept
    @cython.locals(index=cython.int, at=cython.Py_ssize_t, size=cython.Py_ssize_t)
    cdef int write_clustering(self, TablePlan plan, RowBuffer rows, int count) except -1
    @cython.locals(out="unsigned char *", pos=cython.Py_ssize_t)
    cdef int write_key_value(self, RowBuffer rows, TablePlan plan, Py_ssize_t at, Py_ssize_t size, int node, int kind) except -1
    @cython.locals(total=cython.Py_ssize_t, encoded=cython.ulonglong, count=cython.Py_ssize_t, index=cython.Py_ssize_t,
                   present=cython.Py_ssize_t, few=cython.bint, wanted=cython.ulonglong, left=cython.longlong)
    cdef Py_ssize_t read_subset(self, ColumnList columns) noexcept
    @cython.locals(deleted=cython.longlong, deleted_local=cython.longlong, count=cython.Py_ssize_t, cell=cython.int,
                   whole=cython.bint, replaced=cython.longlong, touched=cython.bint, index=cython.Py_ssize_t, shape=cython.int,
                   time=cython.longlong, operation=cython.int, plain=cython.bint)
    cdef int read_row(self, TablePlan plan, ColumnList columns, int flags, bint static, int part) except -1
    @cython.locals(rows=RowBuffer, pos=cython.Py_ssize_t, out="unsigned char *")
    cdef int begin_change(self, TablePlan plan, int operation, long long time, long long deleted, long long local) except -1
    @cython.locals(key=RowBuffer)
    cdef int put_key(self, RowBuffer rows) except -1
    cdef int put_absent(self, RowBuffer rows, Py_ssize_t count) except -1
    @cython.locals(rows=RowBuffer)
    cdef int write_row(self, TablePlan plan, int operation, bint static, long long time, long long deleted, long long local) except -1
    @cython.locals(rows=RowBuffer, time=cython.longlong, local=cython.longlong)
    cdef int read_partition_deletion(self, TablePlan plan) except -1
    @cython.locals(kind=cython.int, size=cython.int, time=cython.longlong, local=cython.longlong)
    cdef int read_marker(self, TablePlan plan, int part) except -1
    cdef int write_bound(self, TablePlan plan, RowBuffer rows, int size, bint inclusive) except -1
    @cython.locals(rows=RowBuffer, bound=RowBuffer)
    cdef int write_range(self, TablePlan plan, int size, bint inclusive) except -1
