"""Builds datagrams of BCCN1 from frames of the bus, in one piece. Source: BCCN, WIRE FORMAT."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memchr, memcpy

cdef enum:
    # bytes of ``MSG ``, before the channel of a frame
    VERB = 4
    # bytes of the longest number
    DIGITS = 20
    # bytes of a sum
    SUM = 16


cpdef Py_ssize_t find_nul(bytes packet) noexcept:
    """Return where the key of a packet ends, or -1."""
    cdef const char *text = PyBytes_AS_STRING(packet)
    cdef const char *nul = <const char *> memchr(text, 0, <size_t> PyBytes_GET_SIZE(packet))
    return nul - text if nul != NULL else -1


cdef inline Py_ssize_t _write_number(char *end, unsigned long long number) noexcept:
    """Write a number in decimal digits before ``end``; return how many."""
    cdef char *at = end
    while True:
        at -= 1
        at[0] = <char> (48 + number % 10)
        number //= 10
        if not number:
            return end - at


cdef inline char *_put(char *at, const char *text, Py_ssize_t size) noexcept:
    memcpy(at, text, <size_t> size)
    return at + size


cpdef bytes build(bytes src, unsigned long long seq, bytes frame, Hmac8 key=None):
    """Return the datagram of a message, with a sum if there is a key; ``frame`` is ``MSG <chan>``, a NUL and the payload.

    Raises ValueError for a frame without a NUL; whether its channel is one is checked elsewhere.
    """
    cdef char seq_digits[DIGITS]
    cdef char size_digits[DIGITS]
    cdef Py_ssize_t nul = find_nul(frame) - VERB
    cdef Py_ssize_t fields = PyBytes_GET_SIZE(frame) - VERB
    cdef Py_ssize_t numbered = _write_number(seq_digits + DIGITS, seq)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(src) + numbered + 2 + fields
    cdef Py_ssize_t sized = _write_number(size_digits + DIGITS, <unsigned long long> size)
    cdef bytes datagram
    cdef char *at
    cdef char *total = NULL
    if nul < 0:
        raise ValueError("no frame of a message")
    datagram = PyBytes_FromStringAndSize(NULL, 7 + sized + size + (6 + SUM if key is not None else 0))
    at = _put(PyBytes_AS_STRING(datagram), b"BCCN1[", 6)
    at = _put(at, size_digits + DIGITS - sized, sized)
    if key is not None:
        total = _put(at, b":hmac=", 6)
        at = total + SUM
    at = _put(at, b"]", 1)
    at = _put(at, PyBytes_AS_STRING(src), PyBytes_GET_SIZE(src))
    at = _put(at, b":", 1)
    at = _put(at, seq_digits + DIGITS - numbered, numbered)
    at = _put(at, b":", 1)
    _put(at, PyBytes_AS_STRING(frame) + VERB, fields)
    at[nul] = b"|"
    if key is not None:
        key._compute(at + fields - size, size, total)
    return datagram
