cimport cython
from bccnd.native.system cimport clock
from bccnd.native.system.poller cimport Poller


cpdef int first_served(long long rounds, long long count) noexcept


@cython.final
cdef class Timer:
    cdef public double when
    cdef readonly object call


cdef class Handler:
    cdef on_events(self, unsigned int events)


cdef class _Callback(Handler):
    cdef object _call


@cython.final
cdef class Loop:
    cdef Poller _poller
    cdef list _handlers
    cdef dict _unregistered
    cdef readonly list _timers
    cdef readonly list _soon
    cdef tuple _again
    cdef dict _signals
    cdef bint _running
    cdef readonly long long rounds
    cdef int _wake_read
    cdef int _wake_write

    @cython.locals(poller=Poller, handler=Handler, count=int, number=int, fd=int, events="unsigned int")
    cpdef run(self)
    cpdef soon(self, object call)
    cpdef again(self, tuple fds)
    cpdef bint watches(self, int fd)
    @cython.locals(timer=Timer, seconds=double)
    cdef double _timeout(self) except? -2.0
    @cython.locals(timer=Timer, now=double, due=list)
    cdef _run_timers(self)
