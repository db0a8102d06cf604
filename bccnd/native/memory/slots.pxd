cimport cython

from bccnd.native.memory.source_view cimport Source
from bccnd.native.memory.undo_memory cimport Slot, UndoMemory, u64

cdef struct Cell:
    u64 value
    u64 saved


@cython.final
cdef class SlotMemory(UndoMemory):
    cdef object _reserve
    cdef Cell *_cells
    cdef Slot *_slots
    cdef Py_ssize_t _room
    cdef Py_ssize_t _reserved
    cdef list _free
    cdef dict _labels
    cdef list _free_cells
    cdef set _wanted
    cdef readonly Py_ssize_t refused
    cdef unsigned int *_index
    cdef size_t _mask
    cdef size_t _indexed
    cdef u64 _taken
    cdef unsigned int *_recent

    cdef Slot *at(self, Py_ssize_t number) noexcept
    cdef _label(self, cell, bytes text)
    cpdef int add(self, Py_ssize_t cell, u64 amount=*) except -1
    cpdef u64 value(self, Py_ssize_t cell) except? 0xFFFFFFFF
    cpdef Py_ssize_t take(self, int kind, bytes key) except -2
    cpdef free(self, Py_ssize_t number)
    cdef bint _mark_chain(self, Slot *slot, bytearray used) except -1
    cpdef object absent(self, Py_ssize_t number)
    cpdef object missing(self, Py_ssize_t number)
    cpdef bint set_window(self, Py_ssize_t number, object absent, object missing) except -1
    cdef bint _set_window(self, Slot *slot, object absent, object missing) except -1
    cdef Py_ssize_t _take(self) except -2
    cpdef Py_ssize_t find(self, bytes raw, Py_ssize_t start, Py_ssize_t end) except -2
    cdef Py_ssize_t _look(self, const char *text, Py_ssize_t size) noexcept
    cpdef index(self, Py_ssize_t number)
    cdef _grow(self)
    cpdef unindex(self, Py_ssize_t number)
    cpdef Source source(self, Py_ssize_t number)
