cimport cython
from bccnd.native.buffers.counts cimport Counts


@cython.final
cdef class NamedCounts:
    cdef dict _counts

    cpdef add(self, str name, object amount=*)


@cython.final
cdef class SegmentCounters:
    cdef readonly object name
    cdef Counts _verdicts
    cdef public unsigned long long sent
    cdef public unsigned long long reopened
    cdef readonly NamedCounts errors

    cpdef judged(self, Py_ssize_t verdict, unsigned long long amount=*)


@cython.final
cdef class GroupCounters:
    cdef readonly tuple names
    cdef Counts _messages
    cdef Counts _bytes

    cpdef count(self, Py_ssize_t group, unsigned long long size)


@cython.final
cdef class BusCounters:
    cdef public unsigned long long deliveries
    cdef public unsigned long long published
    cdef public unsigned long long control_dropped
    cdef readonly NamedCounts refused
    cdef readonly NamedCounts ended
    cdef readonly NamedCounts held
    cdef readonly NamedCounts dropped
    cdef readonly NamedCounts errors
