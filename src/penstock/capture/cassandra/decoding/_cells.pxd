# The C types of _cells.py.
import cython

from penstock.capture.cassandra.decoding._values cimport (
    BYTES, FITS, MORE_FIELDS, NO_TIME, TEXT,
    Values,
    be64, copy, counted, local_second, put_deleted, put_deletion, put_long, put_scalar, put_stamp, signed32, signed64, vint_bytes, vint_value,
)
from penstock.formats._kernel cimport RowBuffer

cdef enum:
    NOTHING
    UNKNOWN_TABLE
    UNKNOWN_COLUMN
    WAITING
    UNKNOWN_FIELD
    SHORT
    UNFIT
    ODD_FLAGS
    ODD_COLUMNS
    ODD_RANGES
    ODD_TIMES
    TRAILING
    TOO_LARGE

cdef enum:
    SIMPLE
    LIST_CELLS
    SET_CELLS
    MAP_CELLS
    FIELD_CELLS
    COUNTER_CELL

cdef enum:
    ABSENT
    LIVE
    DEAD
    DELTA

cdef enum:
    STATE
    TIME
    LOCAL
    TTL
    AT
    SIZE
    LIVING
    GONE
    LINE

cdef enum:
    CELL_BYTES_MORE = 64


@cython.final
cdef class ColumnList:
    cdef const unsigned char[::1] view
    cdef const unsigned char *names
    cdef Py_ssize_t size
    cdef Py_ssize_t count
    cdef const int[::1] cells_view
    cdef const int *cells
    cdef bint plain


@cython.final
cdef class TablePlan:
    cdef readonly bytes table_id
    cdef const unsigned char[::1] view
    cdef const unsigned char *id
    cdef public int mode
    cdef bint learns
    cdef Values values
    cdef int partitions
    cdef int clusterings
    cdef int cells
    cdef const int[::1] partition
    cdef const int[::1] clustering
    cdef const int[::1] partition_kinds
    cdef const int[::1] clustering_kinds
    cdef const int[::1] clustering_widths
    cdef const int[::1] nodes
    cdef const int[::1] paths
    cdef const int[::1] shapes
    cdef const int[::1] widths
    cdef const int[::1] kinds
    cdef const int[::1] path_kinds
    cdef const int[::1] element_kinds
    cdef dict static_numbers
    cdef dict regular_numbers
    cdef list static_lists
    cdef list regular_lists
    cdef readonly RowBuffer rows
    cdef readonly Py_ssize_t count
    cdef readonly long long when_max
    cdef readonly unsigned long long epoch
    cdef long long serial
    cdef Py_ssize_t mark_size
    cdef Py_ssize_t mark_count
    cdef long long mark_when
    cdef TablePlan touched_before

    @cython.locals(shape=cython.int, plain=cython.bint)
    cdef bint is_plain(self, list cells) except -1
    cpdef take(self, Py_ssize_t capacity_max)
    cpdef append(self, bytes row, long long when)


cdef class CellReader:
    cdef object source
    cdef const unsigned char[::1] view
    cdef const unsigned char *src
    cdef Py_ssize_t size
    cdef Py_ssize_t at
    cdef Py_ssize_t end
    cdef readonly int problem
    cdef bint unsigned_local
    cdef unsigned long long min_time
    cdef unsigned long long min_local
    cdef unsigned long long min_ttl
    cdef long long row_time
    cdef long long marker_time
    cdef long long marker_local
    cdef long long marker_ttl
    cdef Py_ssize_t path_at
    cdef Py_ssize_t path_size
    cdef readonly Py_ssize_t entry_size
    cdef int lines
    cdef long long[::1] table
    cdef long long *scratch

    cdef int use(self, object source) except -1
    cdef int widen(self, int cells) except -1
    cdef int fail(self, int problem) noexcept
    cdef int byte(self) noexcept
    @cython.locals(step=cython.Py_ssize_t)
    cdef unsigned long long uv(self) noexcept
    @cython.locals(raw=cython.ulonglong)
    cdef Py_ssize_t length(self) noexcept
    cdef long long time(self) noexcept
    @cython.locals(raw=cython.ulonglong)
    cdef unsigned long long uv32(self) noexcept
    cdef long long ttl(self) noexcept
    cdef long long local(self) noexcept
    @cython.locals(src="const unsigned char *", at=cython.Py_ssize_t, end=cython.Py_ssize_t, flags=cython.int,
                   time=cython.longlong, local=cython.longlong, ttl=cython.longlong, step=cython.Py_ssize_t,
                   size=cython.Py_ssize_t, state=cython.int, place=cython.Py_ssize_t, scratch="long long *")
    cdef int read_cell(self, int line, int width, bint has_path) noexcept
    cdef int state_of(self, long long local, long long ttl, Py_ssize_t size) noexcept
    @cython.locals(at=cython.Py_ssize_t, time=cython.longlong, local=cython.longlong, count=cython.ulonglong,
                   _=cython.ulonglong, living=cython.longlong, spare=cython.Py_ssize_t)
    cdef int read_delta(self, int line, bint with_deletion) noexcept
    cdef int check(self, int outcome) noexcept
    @cython.locals(rows=RowBuffer, scratch="long long *", cell=cython.int, out="unsigned char *", pos=cython.Py_ssize_t,
                   place=cython.Py_ssize_t, state=cython.int, kind=cython.int, size=cython.Py_ssize_t)
    cdef int write_cells(self, TablePlan plan, long long time) except -1
    @cython.locals(rows=RowBuffer, place=cython.Py_ssize_t, at=cython.Py_ssize_t)
    cdef int write_parts(self, TablePlan plan, int cell, long long time) except -1
    @cython.locals(out="unsigned char *", place=cython.Py_ssize_t, own=cython.longlong, local=cython.longlong)
    cdef int stamp(self, RowBuffer rows, int line, long long time) except -1
    @cython.locals(rows=RowBuffer, place=cython.Py_ssize_t, out="unsigned char *", stay=cython.Py_ssize_t)
    cdef int write_delta(self, TablePlan plan, int cell, long long time) except -1
    @cython.locals(_=cython.longlong)
    cdef int write_elements(self, TablePlan plan, int cell, long long time, int state, long long count) except -1
    @cython.locals(rows=RowBuffer, at=cython.Py_ssize_t, shape=cython.int, field=cython.int, outcome=cython.int,
                   start=cython.Py_ssize_t, size=cython.Py_ssize_t)
    cdef int write_element(self, TablePlan plan, int cell, long long time) except -1
    @cython.locals(at=cython.Py_ssize_t, size=cython.Py_ssize_t, marks=cython.int, rest=cython.Py_ssize_t,
                   shards=cython.Py_ssize_t, _=cython.Py_ssize_t, pos=cython.Py_ssize_t, out="unsigned char *")
    cdef int write_counter(self, RowBuffer rows, int cell, long long time) except -1
