cimport cython
from cpython.object cimport PyObject

cdef extern from "Python.h":
    Py_ssize_t references "Py_REFCNT"(PyObject *value)


@cython.final
cdef class ReusedBytes:
    cdef bytes _spare

    cpdef bytes join(self, bytes head, bytes raw, Py_ssize_t start)
    cdef bytes copy(self, const char *data, Py_ssize_t size)
    cdef bytes _room(self, Py_ssize_t size)
