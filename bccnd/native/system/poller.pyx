"""epoll(7), with the descriptors that are ready kept here instead of returned."""

import os

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EINTR, errno
from libc.math cimport ceil
from posix.unistd cimport close as c_close

cdef extern from "<sys/epoll.h>" nogil:
    enum:
        EPOLL_CLOEXEC
        EPOLL_CTL_ADD
        EPOLL_CTL_DEL
        EPOLL_CTL_MOD
    int epoll_create1(int flags)
    int epoll_ctl(int epoll, int what, int fd, epoll_event *event)
    int epoll_wait(int epoll, epoll_event *events, int most, int milliseconds)

cdef extern from "Python.h":
    ctypedef struct PyThreadState:
        # the interpreter's list of its threads
        PyThreadState *prev
        PyThreadState *next
    PyThreadState *PyThreadState_Get()


cdef _failed():
    raise OSError(errno, os.strerror(errno))


@cython.final
cdef class Poller:
    """An epoll instance and the result of its last `wait`."""

    def __init__(self):
        self._count = 0
        self._epoll = epoll_create1(EPOLL_CLOEXEC)
        if self._epoll < 0:
            _failed()

    def __dealloc__(self):
        if self._epoll > 0:
            c_close(self._epoll)

    cdef _control(self, int operation, int fd, unsigned int events):
        cdef epoll_event event
        event.events, event.data.fd = events, fd
        if epoll_ctl(self._epoll, operation, fd, &event):
            _failed()

    cpdef register(self, int fd, unsigned int events):
        """Raises OSError, as do `modify` and `unregister`."""
        self._control(EPOLL_CTL_ADD, fd, events)

    cpdef modify(self, int fd, unsigned int events):
        self._control(EPOLL_CTL_MOD, fd, events)

    cpdef unregister(self, int fd):
        """Forget a descriptor; its events of the last `wait` become 0."""
        cdef int number
        self._control(EPOLL_CTL_DEL, fd, 0)
        for number in range(self._count):
            if self._events[number].data.fd == fd:
                self._events[number].events = 0

    cpdef int wait(self, double seconds) except -1:
        """Wait until a descriptor is ready, a signal arrives or the seconds have passed (negative: never).

        Returns how many descriptors are ready.
        """
        # Rounded up, so that the last part of a millisecond is not spent in waits of no time.
        cdef int milliseconds = <int> ceil(seconds * 1000) if seconds >= 0 else -1
        cdef PyThreadState *thread = PyThreadState_Get()
        cdef int count
        if thread.prev == NULL and thread.next == NULL:
            # There is no other thread to release the interpreter's lock for.
            count = epoll_wait(self._epoll, self._events, MOST, milliseconds)
        else:
            with nogil:
                count = epoll_wait(self._epoll, self._events, MOST, milliseconds)
        self._count = max(count, 0)
        if count < 0:
            if errno != EINTR:
                _failed()
            PyErr_CheckSignals()
        return self._count

    cpdef int fd(self, int number) except -1:
        """Return one of the ready descriptors, from 0."""
        if not 0 <= number < self._count:
            raise IndexError(number)
        return self._events[number].data.fd

    cpdef unsigned int events(self, int number) except? 0:
        """Return the events of a ready descriptor."""
        if not 0 <= number < self._count:
            raise IndexError(number)
        return self._events[number].events

    cpdef close(self):
        if self._epoll > 0:
            c_close(self._epoll)
            self._epoll = 0
