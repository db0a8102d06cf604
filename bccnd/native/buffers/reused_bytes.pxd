cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.object cimport PyObject

cdef extern from "Python.h":
    ctypedef struct PyBytesObject:
        Py_hash_t ob_shash
    Py_ssize_t references "Py_REFCNT"(PyObject *value)
    void Py_SET_SIZE(object value, Py_ssize_t size)


cdef inline void resize(bytes room, Py_ssize_t size) noexcept:
    """Change bytes in place, with no other reference, for new content of at most the size that they were made with."""
    Py_SET_SIZE(room, size)
    PyBytes_AS_STRING(room)[size] = 0
    # The hash of the previous content.
    (<PyBytesObject *> room).ob_shash = -1


@cython.final
cdef class ReusedBytes:
    cdef bytes _spare

    cpdef bytes join(self, bytes head, bytes raw, Py_ssize_t start)
    cdef bytes copy(self, const char *data, Py_ssize_t size)
    cdef bytes _room(self, Py_ssize_t size)
