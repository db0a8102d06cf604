"""Compiled twin of hmac8.py.

The SHA256_* calls are deprecated in OpenSSL 3, but their states are copied by a memcpy; see docs/architecture.md for
what EVP costs.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

cdef extern from "openssl/sha.h" nogil:
    int SHA256_Init(SHA256_CTX *c)
    int SHA256_Update(SHA256_CTX *c, const void *data, size_t size)
    int SHA256_Final(unsigned char *digest, SHA256_CTX *c)

cdef enum:
    BLOCK = 64
    SUM = 8


cdef void _begin(SHA256_CTX *state, const unsigned char *block, unsigned char pad) noexcept:
    """Compute the state after the padded key."""
    cdef unsigned char padded[BLOCK]
    cdef int i
    for i in range(BLOCK):
        padded[i] = block[i] ^ pad
    SHA256_Init(state)
    SHA256_Update(state, padded, BLOCK)


@cython.final
cdef class Hmac8:
    """Computes and verifies sums."""

    def __init__(self, bytes key not None):
        cdef unsigned char block[BLOCK]
        cdef unsigned char digest[32]
        cdef SHA256_CTX state
        cdef const unsigned char *text = <const unsigned char *> PyBytes_AS_STRING(key)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(key)
        cdef int i
        if size > BLOCK:
            SHA256_Init(&state)
            SHA256_Update(&state, text, <size_t> size)
            SHA256_Final(digest, &state)
            text, size = digest, 32
        for i in range(BLOCK):
            block[i] = text[i] if i < size else 0
        _begin(&self._inner, block, 0x36)
        _begin(&self._outer, block, 0x5C)

    cdef void _compute(self, const char *body, Py_ssize_t size, char *digits) noexcept:
        """Write the 16 digits of the sum."""
        cdef SHA256_CTX state = self._inner
        cdef unsigned char digest[32]
        cdef const char *hexadecimal = "0123456789abcdef"
        cdef int i
        SHA256_Update(&state, body, <size_t> size)
        SHA256_Final(digest, &state)
        state = self._outer
        SHA256_Update(&state, digest, 32)
        SHA256_Final(digest, &state)
        for i in range(SUM):
            digits[2 * i] = hexadecimal[digest[i] >> 4]
            digits[2 * i + 1] = hexadecimal[digest[i] & 15]

    cpdef bytes sum(self, bytes body):
        """Return the sum of a body, in 16 lowercase hex digits."""
        cdef bytes digits = PyBytes_FromStringAndSize(NULL, 2 * SUM)
        self._compute(PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body), PyBytes_AS_STRING(digits))
        return digits

    cpdef bint verify_at(self, bytes raw, Py_ssize_t start, Py_ssize_t end) noexcept:
        """Whether ``raw[start:end]`` is the sum of ``raw[end + 1 :]``."""
        cdef char digits[2 * SUM]
        cdef const char *text = PyBytes_AS_STRING(raw)
        cdef unsigned char difference = 0
        cdef int i
        if start < 0 or end - start != 2 * SUM or end >= PyBytes_GET_SIZE(raw):
            return False
        self._compute(text + end + 1, PyBytes_GET_SIZE(raw) - end - 1, digits)
        # constant time
        for i in range(2 * SUM):
            difference |= <unsigned char> text[start + i] ^ <unsigned char> digits[i]
        return difference == 0
