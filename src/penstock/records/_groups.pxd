# The C types of _groups.py.
import cython

from penstock.formats._kernel cimport RowReader
from penstock.records._keys cimport TIMELESS, fetch, same_bytes

cdef int _TRUNCATE
cdef int _AHEAD


@cython.final
cdef class Groups:
    cdef readonly Py_ssize_t size
    cdef Py_ssize_t limit
    cdef readonly Py_ssize_t count
    cdef dict known

    @cython.locals(rows=cython.Py_ssize_t)
    cpdef Py_ssize_t number_contents(self, const unsigned long long[:, ::1] hashes, long long[::1] groups, long long[::1] firsts, long long[::1] slots) except -1
    @cython.locals(rows=cython.Py_ssize_t, row=cython.Py_ssize_t)
    cpdef Py_ssize_t number_keys(self, RowReader reader, const long long[:, ::1] places, const unsigned long long[:, ::1] hashes, long long[::1] groups, long long[::1] firsts, long long[::1] slots) except -1
    cdef int _check(self, Py_ssize_t rows, object groups, object firsts, object slots) except -1
    cdef Py_ssize_t _numbered(self, list keys, object groups, object firsts) except -1
    @cython.locals(mask=cython.ulonglong, row=cython.Py_ssize_t, slot=cython.ulonglong, group=cython.longlong, first=cython.longlong)
    cdef Py_ssize_t _contents(self, Py_ssize_t rows, const unsigned long long[:, ::1] hashes, long long[::1] groups, long long[::1] firsts, long long[::1] slots) except -1
    @cython.locals(mask=cython.ulonglong, row=cython.Py_ssize_t, slot=cython.ulonglong, group=cython.longlong, first=cython.longlong, size=cython.Py_ssize_t)
    cdef Py_ssize_t _keys(self, Py_ssize_t rows, RowReader reader, const long long[:, ::1] places, const unsigned long long[:, ::1] hashes, long long[::1] groups, long long[::1] firsts, long long[::1] slots) except -1


@cython.final
cdef class Contents:
    cdef object known
    cdef unsigned long long mask
    cdef unsigned long long count
    cdef unsigned long long[:, ::1] slots

    @cython.locals(rows=cython.Py_ssize_t, row=cython.Py_ssize_t)
    cpdef mark(self, const unsigned long long[:, ::1] hashes, const unsigned char[:, ::1] marks, unsigned char[::1] fresh)
    @cython.locals(slot=cython.ulonglong)
    cdef int _add(self, unsigned long long high, unsigned long long low) except -1
    @cython.locals(old="unsigned long long[:, ::1]", slot=cython.Py_ssize_t)
    cdef int _grow(self) except -1
