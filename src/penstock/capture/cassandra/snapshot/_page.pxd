# The C types of _page.py.
import cython
from libc.stdint cimport int64_t

from penstock.capture.cassandra.decoding._values cimport FITS, Values, be32, be64, same, signed32, signed64
from penstock.formats._encoder cimport RowEncoder
from penstock.formats._kernel cimport RowBuffer

cdef enum:
    PLAIN
    COUNTER
    LIST
    SET
    MAP
    USER
    EMPTY

cdef enum:
    VISIBLE = 1
    HIDDEN

cdef long long _NO_TIME
cdef long long _LEAST_TIME
cdef int _SNAPSHOT
cdef long long _LIST_TICKS


@cython.final
cdef class PageEncoder:
    cdef readonly RowEncoder encoder
    cdef Values values
    cdef const int[::1] key_nodes
    cdef int partition
    cdef int keys
    cdef int clustering
    cdef const int[::1] shapes
    cdef const int[::1] timed
    cdef const int[::1] statics
    cdef const int[::1] numbers
    cdef const int[::1] nodes
    cdef const int[::1] columns_of
    cdef int cells
    cdef bint has_static
    cdef bint has_marker
    cdef bint assume
    cdef int width
    cdef long long[::1] at_of
    cdef long long[::1] size_of
    cdef bytes previous
    cdef readonly int column
    cdef bytes body
    cdef const unsigned char[::1] data
    cdef Py_ssize_t end
    cdef Py_ssize_t at
    cdef readonly Py_ssize_t rows_left
    cdef long long read_s
    cdef long long list_time
    cdef long long capture_time
    cdef readonly long long time_max
    cdef int present
    cdef long long low
    cdef long long high
    cdef int low_ttl
    cdef long long low_expires
    cdef Py_ssize_t time_at
    cdef Py_ssize_t ttl_at
    cdef long long item_time
    cdef int item_ttl

    cpdef open(self, bytes body, Py_ssize_t rows, long long read_s, long long list_time, long long capture_time)
    cpdef tuple take(self)
    cpdef Py_ssize_t encode(self, Py_ssize_t bytes_max) except -1
    @cython.locals(src="const unsigned char *")
    cpdef int64_t last_token(self) except? -1
    @cython.locals(src="const unsigned char *", at=cython.Py_ssize_t, column=cython.int, size=cython.longlong)
    cdef int read_row(self) except -1
    cdef int fail(self, int column) except -1
    @cython.locals(src="const unsigned char *", start=cython.Py_ssize_t, end=cython.Py_ssize_t, known=bytes)
    cdef int put_row(self) except -1
    @cython.locals(time=cython.longlong, when=cython.longlong, column=cython.int, size=cython.longlong, cell=cython.int)
    cdef int put_group(self, const unsigned char *src, bint static) except -1
    @cython.locals(time=cython.longlong)
    cdef int put_marker(self) except -1
    @cython.locals(cell=cython.int, column=cython.int, shape=cython.int)
    cdef int survey(self, const unsigned char *src, bint static) except -1
    @cython.locals(time=cython.longlong, ttl=cython.longlong)
    cdef int note_plain(self, const unsigned char *src, int column, int shape) except -1
    @cython.locals(times=cython.longlong, _item=cython.longlong)
    cdef int note_elements(self, const unsigned char *src, int column) except -1
    cdef int note(self, long long time, long long ttl) except -1
    @cython.locals(count=cython.longlong)
    cdef int64_t count_of(self, const unsigned char *src, int column) except -1
    @cython.locals(end=cython.Py_ssize_t, size=cython.longlong)
    cdef int next_stamp(self, const unsigned char *src, int column) except -1
    @cython.locals(column=cython.int, shape=cython.int, number=cython.int, size=cython.longlong, node=cython.int,
                   time=cython.longlong, ttl=cython.longlong, expires=cython.longlong)
    cdef int put_cell(self, const unsigned char *src, int cell) except -1
    @cython.locals(rows=RowBuffer, time=cython.longlong)
    cdef int put_delta(self, const unsigned char *src, int cell, int column, int shape) except -1
    @cython.locals(floor=cython.longlong, count=cython.longlong, _item=cython.longlong)
    cdef int64_t list_floor(self, const unsigned char *src, int cell, int column) except? -1
    @cython.locals(rows=RowBuffer, values=Values, count=cython.longlong, at=cython.Py_ssize_t, end=cython.Py_ssize_t,
                   first=cython.int, second=cython.int, index=cython.longlong, size=cython.longlong)
    cdef int put_items(self, const unsigned char *src, int cell, int column, int shape, long long time) except -1
    @cython.locals(rows=RowBuffer, values=Values, node=cython.int, fields=cython.int, at=cython.Py_ssize_t,
                   end=cython.Py_ssize_t, count=cython.int, index=cython.int, other=cython.int, size=cython.longlong)
    cdef int put_fields(self, const unsigned char *src, int cell, int column, long long time) except -1
    @cython.locals(at=cython.Py_ssize_t, end=cython.Py_ssize_t, count=cython.int, _index=cython.int, size=cython.longlong)
    cdef int count_fields(self, const unsigned char *src, int column, int fields) except -1
    @cython.locals(rows=RowBuffer, ttl=cython.longlong)
    cdef int put_item_stamp(self, const unsigned char *src, int cell, int column, int shape, long long time) except -1
    @cython.locals(rows=RowBuffer, ticks=cython.longlong, place=cython.int, _place=cython.int)
    cdef int put_list_id(self, long long index) except -1
