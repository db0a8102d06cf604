cimport cython
from bccnd.core.tracking.source cimport Source
from bccnd.native.buffers.dict_by_slice cimport Index


@cython.final
cdef class SourceTable:
    cdef readonly Index by_src
    cdef readonly Py_ssize_t count
    cdef public Py_ssize_t silent
    cdef Source _oldest
    cdef Source _newest

    cpdef add(self, Source source)
    cpdef remove(self, Source source)
    cpdef touch(self, Source source)
    cdef _link(self, Source source)
    @cython.locals(older=Source, newer=Source)
    cdef _unlink(self, Source source)
    @cython.locals(alive=Py_ssize_t, silent=Py_ssize_t, newer=Source, older=Source)
    cpdef Py_ssize_t count_heard_since(self, double since, double lag) except -1
    cpdef Source oldest(self)
