"""Bytes that reuse memory to which nothing else refers any more, in place of an allocation for each message."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.string cimport memcpy

cdef extern from "Python.h":
    ctypedef struct PyBytesObject:
        Py_hash_t ob_shash
    void Py_SET_SIZE(object value, Py_ssize_t size)

cdef enum:
    # With it a bytes object takes 512 bytes, the most that Python's allocator for small objects gives.
    ROOM = 479


@cython.final
cdef class ReusedBytes:
    """Makes bytes, one message after the other. A result that is still in use keeps its content: the next one then is
    a new object."""

    def __init__(self):
        self._spare = PyBytes_FromStringAndSize(NULL, ROOM)

    cpdef bytes join(self, bytes head, bytes raw, Py_ssize_t start):
        """Return ``head + raw[start:]``. Raises IndexError for a start outside ``raw``."""
        cdef Py_ssize_t before = PyBytes_GET_SIZE(head)
        cdef Py_ssize_t behind = PyBytes_GET_SIZE(raw) - start
        cdef bytes whole
        if start < 0 or behind < 0:
            raise IndexError("outside the bytes")
        whole = self._room(before + behind)
        memcpy(PyBytes_AS_STRING(whole), PyBytes_AS_STRING(head), <size_t> before)
        memcpy(PyBytes_AS_STRING(whole) + before, PyBytes_AS_STRING(raw) + start, <size_t> behind)
        return whole

    cdef bytes copy(self, const char *data, Py_ssize_t size):
        cdef bytes whole = self._room(size)
        memcpy(PyBytes_AS_STRING(whole), data, <size_t> size)
        return whole

    cdef bytes _room(self, Py_ssize_t size):
        """Return bytes of this size, to be filled by the caller."""
        if size > ROOM or references(<PyObject *> self._spare) != 1:
            return PyBytes_FromStringAndSize(NULL, size)
        Py_SET_SIZE(self._spare, size)
        PyBytes_AS_STRING(self._spare)[size] = 0
        # The hash of the previous content.
        (<PyBytesObject *> self._spare).ob_shash = -1
        return self._spare
