cimport cython
from bccnd.core.dedup cimport TrackerTable
from bccnd.core.lru cimport Source
from bccnd.native cimport scan
from bccnd.native.record_buffer cimport RecordBuffer

cdef int _RECORD
cdef int _LINKED
cdef int _BEAT
cdef int _COLON
cdef double _ENDLESS


cdef class TrackerLog:
    cdef public unsigned long long serial
    cdef readonly Py_ssize_t size
    cdef readonly bint complete
    cdef readonly str failed
    cdef TrackerTable _sources
    cdef object _anonymous
    cdef object _liveness
    cdef readonly RecordBuffer notes
    cdef double _now
    cdef object _write
    cdef Py_ssize_t _snapshot
    cdef object _walk

    cpdef datagram(self, bytes src, object seq)
    cpdef flush(self, double now)
    cdef _flush(self, unsigned long long serial, double now)
    cdef _put_out(self, bytes record)


cdef class _Reader:
    cdef readonly Py_ssize_t records
    cdef readonly Py_ssize_t datagrams
    cdef public bint complete
    cdef readonly list doubts
    cdef TrackerTable _sources
    cdef object _anonymous
    cdef object _liveness
    cdef double _now
    cdef unsigned long long _skip
    cdef Py_ssize_t _files
    cdef double _latest
    cdef dict _own

    @cython.locals(kind=int, size=Py_ssize_t, at=Py_ssize_t, serial=ulonglong, when=double)
    cdef _record(self, bytes data, Py_ssize_t start, Py_ssize_t end, dict strange)
    @cython.locals(colon=Py_ssize_t, found=longlong, source=Source, src=bytes)
    cdef _datagram(self, bytes data, Py_ssize_t start, Py_ssize_t end, double when)
    @cython.locals(
        source=Source, src=bytes, heard=double, rank=double, beat=double, gap=double, interval=double, latest=double,
        named=Py_ssize_t, bits=Py_ssize_t, behind=Py_ssize_t, state=int, epoch=int,
    )
    cdef _source(self, bytes what, double when)
