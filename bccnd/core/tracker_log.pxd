cimport cython
from bccnd.native.record_buffer cimport RecordBuffer


@cython.final
cdef class TrackerLog:
    cdef public unsigned long long serial
    cdef readonly Py_ssize_t size
    cdef readonly bint complete
    cdef readonly str failed
    cdef readonly RecordBuffer entries
    cdef double _now
    cdef object _write
    cdef object _snapshot
    cdef Py_ssize_t _snapshot_size
    cdef object _rest

    cpdef log_datagram(self, bytes src, object seq)
    cpdef flush(self, double now, bint from_link=*)
    cdef _put(self, tuple entry)
    cdef _flush(self, int kind, unsigned long long serial, double now)
    cdef _append(self, bytes record)
