cimport cython


@cython.final
cdef class Poller:
    cdef int _epoll
    cdef int _count
    cdef bytearray _room

    cpdef register(self, int fd, unsigned int events)
    cpdef modify(self, int fd, unsigned int events)
    cpdef unregister(self, int fd)
    cpdef int wait(self, double seconds) except -1
    cpdef int fd(self, int number) except -1
    cpdef unsigned int events(self, int number) except? 0
    cpdef close(self)
