cimport cython
from bccnd.core.sender_counts cimport SenderCounts
from bccnd.native.slice_dict cimport Index


cdef class Source:
    cdef readonly bytes src
    cdef public unsigned long long first
    cdef public unsigned long long last
    # one bit for each of `sanity` seqs
    cdef public object absent
    cdef public object missing
    cdef public double heard
    cdef public double rank
    cdef public double beat
    cdef public float gap
    cdef public float interval
    cdef public int epoch
    cdef public int state
    cdef public SenderCounts sender
    cdef public Source older
    cdef public Source newer


@cython.final
cdef class LruTable:
    cdef readonly Index index
    cdef Source _end

    cpdef Source get(self, bytes src)
    cpdef add(self, Source source)
    cpdef remove(self, Source source)
    cpdef touch(self, Source source)
    cdef _link(self, Source source)
    cdef _unlink(self, Source source)
    @cython.locals(new=Source, old=Source, end=Source, alive=Py_ssize_t, silent=Py_ssize_t)
    cpdef Py_ssize_t count_heard_since(self, double since, double lag)
    @cython.locals(source=Source)
    cpdef sort(self)
