cimport cython
from bccnd.native.memory.slots cimport SlotMemory


@cython.final
cdef class NamedCounts:
    cdef SlotMemory _memory
    cdef str _group
    cdef dict _cells

    @cython.locals(cell=Py_ssize_t)
    cpdef add(self, str name, unsigned long long amount=*)


@cython.final
cdef class SegmentCounters:
    cdef SlotMemory _memory
    cdef readonly object name
    cdef list _verdicts
    cdef NamedCounts _numbers
    cdef readonly NamedCounts errors

    cpdef judged(self, Py_ssize_t verdict, unsigned long long amount=*)
    cpdef count_sent(self)


@cython.final
cdef class GroupCounters:
    cdef readonly tuple names
    cdef SlotMemory _memory
    cdef list _cells

    cpdef count(self, Py_ssize_t group, unsigned long long size)


@cython.final
cdef class BusCounters:
    cdef NamedCounts _numbers
    cdef readonly NamedCounts refused
    cdef readonly NamedCounts ended
    cdef readonly NamedCounts held
    cdef readonly NamedCounts dropped
    cdef readonly NamedCounts errors

    cpdef delivered(self, unsigned long long messages)
    cpdef count_published(self)
