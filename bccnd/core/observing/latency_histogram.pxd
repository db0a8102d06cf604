cimport cython
from bccnd.native.buffers.counts cimport Counts

cdef int DOUBLINGS
cdef double FIRST_BOUND


@cython.final
cdef class LatencyHistogram:
    cdef Counts _buckets
    cdef readonly double sum

    @cython.locals(bound=double, bucket=int)
    cpdef add(self, double seconds)
