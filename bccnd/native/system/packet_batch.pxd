cdef class PacketBatch:
    cdef int _count
    # headers, vectors and data, in one place
    cdef void *_memory

    cpdef list receive(self, int fd, int most, bint wait)
