cimport cython

from bccnd.native.memory.undo_memory cimport Slot, UndoMemory, u64

cdef enum:
    CHUNK_SIZE = 240

# A slot of a window
cdef struct Chunk:
    unsigned char kind
    char unused[3]
    unsigned int link
    u64 saved
    char data[240]


@cython.final
@cython.freelist(32)
cdef class Source:
    cdef UndoMemory _memory
    cdef Slot *at
    cdef readonly Py_ssize_t number
    cdef public object sender
    cdef unsigned char _kind
    cdef u64 _serial


cdef object absent_bits(Slot *slots, Slot *slot)
cdef object missing_bits(Slot *slots, Slot *slot)
cdef Source view_of(UndoMemory memory, Slot *slots, Py_ssize_t number)
