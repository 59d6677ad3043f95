# The C types of _encoder.py; native decoders cimport RowEncoder from here.
import cython

from penstock.formats._kernel cimport RowBuffer

cdef enum:
    ORIGIN = 4
    MARKER
    DELETION
    RANGE
    KEY
    CELLS
    BEFORE
    SEAL
    IDLE = 99

cdef long long NONE


@cython.final
cdef class RowEncoder:
    cdef readonly RowBuffer rows
    cdef readonly Py_ssize_t count
    cdef int keys
    cdef int cells
    cdef int olds
    cdef bytes deltas
    cdef int field
    cdef int column
    cdef bint stamp_open
    cdef Py_ssize_t started

    cpdef int begin(self, int op, long long time, long long commit_time, long long capture_time) except -1
    cpdef int origin(self, bytes prefix, long long ordinal) except -1
    cpdef int marker(self, long long time, int ttl_s, long long expires_s) except -1
    cpdef int deletion(self, long long time, long long local_s) except -1
    cpdef int range(self, bytes encoded) except -1
    cpdef int key(self, int column) except -1
    cpdef int cell_set(self, int column) except -1
    cpdef int cell_null(self, int column) except -1
    cpdef int stamp(self, long long time, int ttl_s, long long expires_s) except -1
    cpdef int cell_deleted(self, int column, long long time, long long local_s) except -1
    cpdef int cell_delta(self, int column) except -1
    cpdef int old(self, int column) except -1
    cpdef int old_null(self, int column) except -1
    cpdef int finish(self) except -1
    cpdef int abandon(self) except -1
    cdef int put_time(self, long long time) except -1
    cdef int put_expiry(self, int ttl_s, long long expires_s) except -1
    cdef int reach(self, int column, int columns) except -1
    cdef int fill(self, int columns) except -1
    cdef int close_stamp(self) except -1
    cdef int advance(self, int field) except -1
