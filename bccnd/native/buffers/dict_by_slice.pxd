cimport cython


@cython.final
cdef class Index:
    cdef tuple _shards
    cdef Py_ssize_t _count
    # keys, each with its value behind it
    cdef list _cache
    cdef unsigned int _misses

    cdef dict _shard(self, bytes key)
    cdef object _look(self, const char *text, Py_ssize_t size, Py_ssize_t slot)
    cdef _drop(self, bytes key)
    cpdef object get(self, bytes key)
    cpdef object get_slice(self, bytes raw, Py_ssize_t start, Py_ssize_t end)
    cpdef put(self, bytes key, object value)
    cpdef object pop(self, bytes key)
    cpdef Py_ssize_t shards(self)
    cpdef list values(self, Py_ssize_t shard)
