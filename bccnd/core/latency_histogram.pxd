cimport cython

cdef int DOUBLINGS
cdef double FIRST_BOUND


cdef class LatencyHistogram:
    cdef readonly list buckets
    cdef readonly double sum

    @cython.locals(bound=double, bucket=int)
    cpdef add(self, double seconds)
