cimport cython

cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        int fd
    struct epoll_event:
        unsigned int events
        epoll_data_t data

cdef enum:
    MOST = 256


@cython.final
cdef class Poller:
    cdef int _epoll
    cdef int _count
    cdef epoll_event[MOST] _events

    cdef _control(self, int operation, int fd, unsigned int events)
    cpdef register(self, int fd, unsigned int events)
    cpdef modify(self, int fd, unsigned int events)
    cpdef unregister(self, int fd)
    cpdef int wait(self, double seconds) except -1
    cpdef int fd(self, int number) except -1
    cpdef unsigned int events(self, int number) except? 0
    cpdef close(self)
