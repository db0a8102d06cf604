cimport cython


cdef class Timer:
    cdef public double when
    cdef readonly object call


cdef class Loop:
    cdef readonly object _epoll
    cdef dict _callbacks
    cdef readonly list _timers
    cdef readonly list _soon
    cdef dict _signals
    cdef bint _running
    cdef readonly long long rounds
    cdef int _wake_read
    cdef int _wake_write

    @cython.locals(ready=list, count=Py_ssize_t, start=Py_ssize_t)
    cpdef run(self)
    @cython.locals(timer=Timer, seconds=double)
    cdef double _timeout(self) except? -2.0
    @cython.locals(timer=Timer)
    cdef _run_timers(self)
