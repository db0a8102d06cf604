"""Compiled twin of scan.py."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memchr

COMPILED = True


cpdef Py_ssize_t find(bytes raw, int byte, Py_ssize_t start) noexcept:
    cdef const char *text = PyBytes_AS_STRING(raw)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(raw)
    cdef const char *at
    if not 0 <= start <= size:
        return -1
    at = <const char *> memchr(text + start, byte, <size_t> (size - start))
    return -1 if at == NULL else at - text
