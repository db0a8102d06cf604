from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.string cimport memcpy

ctypedef unsigned long long u64

cdef extern from *:
    """
    /* A kill may come at any instruction: writes happen in the order in which they are written down. */
    #define in_order() __asm__ __volatile__("" ::: "memory")
    """
    void in_order() noexcept

cdef enum:
    HEAD = 64
    UNDO = 4096
    UNDO_SIZE = 163840

cdef struct Header:
    char magic[8]
    u64 change
    u64 serial
    u64 undo
    u64 overflow
    u64 slots
    u64 cells

cdef struct Slot:
    unsigned char kind
    unsigned char state
    unsigned char key_size
    unsigned char unused
    unsigned int epoch
    u64 saved
    u64 last
    double heard
    double rank
    unsigned int window
    unsigned short absent_size
    unsigned short missing_size
    unsigned int older
    unsigned int newer
    u64 serial
    char key[128]
    u64 first
    double beat
    float gap
    float interval
    char rest[40]

ctypedef Slot *SlotPointer

cdef class UndoMemory:
    cdef readonly object memory
    cdef object _view
    cdef char *_base
    cdef Header *_header
    cdef readonly bint recording
    cdef bint _open

    cdef void save_head(self, Slot *slot) noexcept
    cdef void save(self, Slot *slot) noexcept
    cpdef begin(self, u64 serial)
    cpdef commit(self)
    cpdef bint start(self) except -1
    cdef bint _undo(self, u64 serial) except -1


cdef inline char *address_of(object memory) except NULL:
    """Return where memory begins. The caller keeps a memoryview of it, so that it stays mapped."""
    cdef Py_buffer view
    PyObject_GetBuffer(memory, &view, PyBUF_WRITABLE)
    PyBuffer_Release(&view)
    return <char *> view.buf


cdef inline void save_bytes(UndoMemory memory, void *address, size_t size) noexcept:
    """Save what stands somewhere. Inline, as the size is known where this is called."""
    cdef Header *header = memory._header
    cdef u64 *entry = <u64 *> (memory._base + UNDO + header.undo)
    if header.undo + 16 + size > UNDO_SIZE:
        header.overflow = 1
        return
    entry[0], entry[1] = <u64> (<char *> address - memory._base), size
    memcpy(entry + 2, address, size)
    in_order()
    header.undo += 16 + size
    in_order()
