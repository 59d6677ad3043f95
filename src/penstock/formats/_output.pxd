# The C types of _output.py.
import cython
from cpython.bytes cimport PyBytes_AS_STRING
from libc.string cimport memcpy, memmove

from penstock.formats._kernel cimport room


cdef bytes _PAIRS
cdef unsigned long long _ONES
cdef unsigned long long _TOPS


@cython.final
cdef class Output:
    cdef bytearray store
    cdef unsigned char[::1] data
    cdef Py_ssize_t capacity
    cdef Py_ssize_t size

    cdef int reserve(self, Py_ssize_t extra) except -1
    cdef int _grow(self, Py_ssize_t extra) except -1
    cdef int put(self, unsigned char value) except -1
    cdef int copy(self, const unsigned char *source, Py_ssize_t start, Py_ssize_t size) except -1
    @cython.locals(size=cython.Py_ssize_t)
    cdef int raw(self, bytes value) except -1
    @cython.locals(rest=cython.ulonglong, at=cython.Py_ssize_t, pair=cython.int)
    cdef int number(self, long long value) except -1
    @cython.locals(at=cython.Py_ssize_t)
    cdef int padded(self, unsigned long long value, int width) except -1
    @cython.locals(rest=cython.ulonglong, at=cython.Py_ssize_t)
    cdef int varint(self, long long value) except -1
    cdef int zigzag(self, long long value) except -1
    cdef int float64(self, double value) except -1
    @cython.locals(at=cython.Py_ssize_t, step=cython.int, byte=cython.uint, high=cython.uint, low=cython.uint)
    cdef int uuid(self, const unsigned char *source, Py_ssize_t start) except -1
    @cython.locals(at=cython.Py_ssize_t, step=cython.Py_ssize_t, byte=cython.uint)
    cdef int hexadecimal(self, const unsigned char *source, Py_ssize_t start, Py_ssize_t size) except -1
    cdef unsigned char digit(self, unsigned int value) noexcept
    @cython.locals(at=cython.Py_ssize_t, step=cython.Py_ssize_t, left=cython.Py_ssize_t, first=cython.uint, second=cython.uint, third=cython.uint)
    cdef int base64(self, const unsigned char *source, Py_ssize_t start, Py_ssize_t size) except -1
    cdef unsigned char sextet(self, unsigned int value) noexcept
    @cython.locals(at=cython.Py_ssize_t, step=cython.Py_ssize_t, byte=cython.uint, eight=cython.ulonglong)
    cdef int escaped(self, const unsigned char *source, Py_ssize_t start, Py_ssize_t size) except -1
    @cython.locals(at=cython.Py_ssize_t, step=cython.Py_ssize_t, byte=cython.uint, eight=cython.ulonglong)
    cdef int plain(self, const unsigned char *source, Py_ssize_t start, Py_ssize_t size) except -1
    cdef int enclose(self, Py_ssize_t begin, unsigned char opening, unsigned char closing) except -1
    @cython.locals(size=cython.Py_ssize_t)
    cdef int open_gap(self, Py_ssize_t start, Py_ssize_t gap) except -1
    @cython.locals(size=cython.Py_ssize_t, room=cython.Py_ssize_t, rest=cython.Py_ssize_t, end=cython.Py_ssize_t)
    cdef int put_length(self, Py_ssize_t begin, int shift) except -1
    cdef object taken(self)


@cython.locals(count=cython.int)
cdef int digits(unsigned long long value) noexcept
@cython.locals(quote=cython.ulonglong, slash=cython.ulonglong, found=cython.ulonglong)
cdef int _special(unsigned long long eight) noexcept
