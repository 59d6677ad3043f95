# The C types of _parts.py.
import cython
from libc.stdint cimport int64_t

from penstock.formats._kernel cimport RowBuffer

cpdef enum:
    ABSENT
    LASTING
    EXPIRING
    TOMBSTONE
    OPAQUE

cdef long long _MOST
cdef long long NEVER
cdef int _DELETED
cdef int _INSERT
cdef int _DELETE
cdef int _DELETE_PARTITION
cdef int _SNAPSHOT


@cython.final
cdef class RowParts:
    cdef int cells
    cdef long long[::1] kinds
    cdef long long[::1] times
    cdef long long[::1] seconds
    cdef long long[::1] ttls
    cdef long long[::1] starts
    cdef long long[::1] ends
    cdef long long[::1] sources
    cdef int op
    cdef int opaques
    cdef long long version
    cdef long long time_max
    cdef int marker_kind
    cdef long long marker_time
    cdef long long marker_second
    cdef long long marker_ttl
    cdef int deleted
    cdef long long deletion_time
    cdef long long deletion_second
    cdef int key_source
    cdef Py_ssize_t key_start
    cdef Py_ssize_t key_end
    cdef int origin_source
    cdef Py_ssize_t origin_start
    cdef Py_ssize_t origin_end

    @cython.locals(index=cython.int)
    cdef int clear(self) except -1
    cdef int seen(self, long long time) except -1
    @cython.locals(index=cython.int, kind=cython.longlong)
    cdef int keep_above(self, long long floor) except -1
    @cython.locals(gone=cython.bint, index=cython.int)
    cdef int follow(self, RowParts change, long long time) except -1
    cdef int marker_wins(self, RowParts other) except -1
    @cython.locals(index=cython.int, kind=cython.longlong)
    cdef int alive(self, long long now_s) except -1
    @cython.locals(index=cython.int, found=cython.longlong, second=cython.longlong)
    cdef int64_t due(self, long long now_s) except? -1


cdef int put_stamp(RowBuffer out, long long time, long long kind, long long ttl_s, long long second) except -1
cdef int put_tombstone(RowBuffer out, long long time, long long second) except -1
cdef int put_second(RowBuffer out, long long second) except -1
