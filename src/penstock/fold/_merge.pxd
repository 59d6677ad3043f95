# The C types of _merge.py.
import cython


@cython.locals(runs=cython.Py_ssize_t, count=cython.Py_ssize_t, run=cython.Py_ssize_t)
cpdef Py_ssize_t merge_order(const unsigned long long[::1] high, const unsigned long long[::1] low, const long long[::1] bounds, long long[::1] heads, long long[::1] order) except -1
@cython.locals(made=cython.Py_ssize_t, best=cython.Py_ssize_t, place=cython.Py_ssize_t, run=cython.Py_ssize_t, at=cython.Py_ssize_t)
cdef Py_ssize_t _merge(Py_ssize_t runs, const unsigned long long[::1] high, const unsigned long long[::1] low, const long long[::1] bounds, long long[::1] heads, long long[::1] order) except -1
