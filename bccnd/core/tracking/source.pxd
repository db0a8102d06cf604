cimport cython
from bccnd.core.tracking.sender_counts cimport SenderCounts


@cython.final
cdef class Window:
    cdef public object absent
    cdef public object missing


@cython.final
cdef class Source:
    cdef readonly bytes src
    cdef public unsigned long long first
    cdef public unsigned long long last
    cdef public double heard
    cdef public double rank
    cdef public double beat
    cdef public float gap
    cdef public float interval
    cdef public unsigned int epoch
    cdef public unsigned char state
    cdef public unsigned char tracked
    cdef public Window window
    cdef public SenderCounts sender
    cdef public Source older
    cdef public Source newer


cpdef set_window(Source source, object absent, object missing)
