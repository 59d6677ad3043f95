# The C types of _mutations.py.
import cython

from penstock.capture.cassandra.decoding._cells cimport (
    NOTHING, SHORT, TRAILING, UNKNOWN_FIELD, UNKNOWN_TABLE, WAITING,
    TablePlan,
)
from penstock.capture.cassandra.decoding._updates cimport UpdateReader
from penstock.capture.cassandra.decoding._values cimport be32, crc32_of, crc_prepare, put_long, same, signed32
from penstock.formats._kernel cimport RowBuffer

cdef enum:
    DONE
    LEARNED
    PARKED
    DAMAGED
    FULL

cdef enum:
    WRITE
    READ
    WAIT

cdef enum:
    GROWTH_BYTES = 67108864
    GROWTH_FACTOR = 64
    MUTATION_BYTES_MIN = 10
    FRONT_BYTES_MORE = 16


@cython.final
cdef class Mutations(UpdateReader):
    cdef list plans
    cdef dict numbers
    cdef const int[::1] slots
    cdef unsigned int mask
    cdef TablePlan latest
    cdef Py_ssize_t front_size
    cdef TablePlan touched
    cdef long long serial
    cdef readonly Py_ssize_t entry
    cdef readonly long long position
    cdef readonly Py_ssize_t unknown_at
    cdef readonly int what
    cdef readonly long long mutations
    cdef readonly long long changes
    cdef readonly long long skipped
    cdef public long long pending
    cdef bint flagged
    cdef long long start
    cdef bint sealed
    cdef long long after
    cdef readonly Py_ssize_t cursor
    cdef bint learned
    cdef bint passed

    cpdef add(self, TablePlan plan)
    cdef int index_plans(self) except -1
    @cython.locals(front=RowBuffer)
    cpdef begin(self, int format_number, bytes file, long long capture_time)
    cpdef open(self, object data, long long start, bint sealed, long long after, Py_ssize_t cursor)
    cpdef again(self)
    cpdef int single(self, bytes data, long long position) except -1
    @cython.locals(outcome=cython.int)
    cpdef int run(self, long long bytes_max) except -1
    @cython.locals(at=cython.Py_ssize_t, rest=cython.Py_ssize_t, size=cython.longlong)
    cdef int next_entry(self) noexcept
    cdef int bad_frame(self, Py_ssize_t at, Py_ssize_t beyond, int what) noexcept
    @cython.locals(at=cython.Py_ssize_t, found=cython.Py_ssize_t, begin=cython.Py_ssize_t, size=cython.longlong)
    cdef int end_of_entries(self) noexcept
    @cython.locals(front=RowBuffer, problem=cython.int, out="unsigned char *", pos=cython.Py_ssize_t)
    cdef int decode_entry(self) except -1
    @cython.locals(plan=TablePlan, before=TablePlan)
    cdef int settle(self, bint keep) except -1
    @cython.locals(count=cython.ulonglong)
    cdef int read_mutation(self) except -1
    @cython.locals(at=cython.Py_ssize_t, plan=TablePlan, slot=cython.uint, number=cython.int)
    cdef TablePlan find(self)
    @cython.locals(plan=TablePlan)
    cdef int read_update(self, bint last) except -1
