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


cpdef long long parse_uint(bytes raw, Py_ssize_t start, Py_ssize_t end) noexcept:
    cdef const char *text = PyBytes_AS_STRING(raw)
    cdef unsigned long long value = 0
    cdef unsigned int digit
    cdef Py_ssize_t at
    if not 0 <= start < end <= PyBytes_GET_SIZE(raw) or end - start > 19:
        return -1
    for at in range(start, end):
        digit = <unsigned int> (<unsigned char> text[at]) - 48
        if digit > 9:
            return -1
        value = value * 10 + digit
    return <long long> value if value < <unsigned long long> 1 << 63 else -1
