cimport cython
from bccnd.native.memory.slots cimport SlotMemory
from bccnd.native.memory.source_view cimport Source
from bccnd.native.memory.undo_memory cimport SlotPointer

cdef int _SOURCE


@cython.final
cdef class SourceTable:
    cdef readonly SlotMemory memory
    cdef readonly Py_ssize_t count
    cdef public Py_ssize_t silent

    @cython.locals(ends=SlotPointer)
    cdef _link_ends(self)
    @cython.locals(memory=SlotMemory, number=Py_ssize_t, at=SlotPointer)
    cpdef Py_ssize_t add(self, bytes src, unsigned long long seq, double now, double rank) except -2
    @cython.locals(at=SlotPointer)
    cpdef remove(self, Py_ssize_t number)
    cpdef touch(self, Py_ssize_t number)
    @cython.locals(memory=SlotMemory, ends=SlotPointer, at=SlotPointer, last=SlotPointer)
    cdef _link(self, Py_ssize_t number)
    @cython.locals(memory=SlotMemory, at=SlotPointer, older=SlotPointer, newer=SlotPointer)
    cdef _unlink(self, Py_ssize_t number)
    @cython.locals(memory=SlotMemory, number=Py_ssize_t, at=SlotPointer)
    cpdef load(self)
    @cython.locals(
        memory=SlotMemory, alive=Py_ssize_t, silent=Py_ssize_t, new=Py_ssize_t, old=Py_ssize_t,
        ends=SlotPointer, newer=SlotPointer, older=SlotPointer,
    )
    cpdef Py_ssize_t count_heard_since(self, double since, double lag) except -1
    @cython.locals(ends=SlotPointer)
    cpdef Py_ssize_t oldest(self) except -1
