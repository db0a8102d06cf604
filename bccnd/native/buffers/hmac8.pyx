"""HMAC-SHA-256 truncated to 8 bytes, under one key. Source: RFC 2104; BCCN, "HMAC".

The two hash states that depend only on the key are computed once. The SHA256_* calls are deprecated in OpenSSL 3,
but their states are copied by a memcpy; see docs/architecture.md for what EVP costs.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy, memset

cdef extern from "openssl/sha.h" nogil:
    int SHA256_Init(SHA256_CTX *c)
    int SHA256_Update(SHA256_CTX *c, const void *data, size_t size)
    int SHA256_Final(unsigned char *digest, SHA256_CTX *c)
    void SHA256_Transform(SHA256_CTX *c, const unsigned char *block)

cdef extern from "<endian.h>" nogil:
    uint32_t htobe32(uint32_t value)
    uint64_t htobe64(uint64_t value)

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


cdef void _finish(SHA256_CTX *state, const void *rest, Py_ssize_t size, Py_ssize_t hashed) noexcept:
    """Add the rest of a text of ``hashed`` bytes, shorter than a block, and the padding (FIPS 180-4, 5.1.1).

    Quicker than SHA256_Final, which also clears the state; `Hmac8` keeps the key's states anyway.
    """
    cdef unsigned char blocks[2 * BLOCK]
    cdef Py_ssize_t padded = BLOCK if size < BLOCK - 8 else 2 * BLOCK
    cdef uint64_t bits = htobe64(<uint64_t> hashed * 8)
    memset(blocks, 0, sizeof(blocks))
    memcpy(blocks, rest, <size_t> size)
    blocks[size] = 0x80
    memcpy(blocks + padded - 8, &bits, 8)
    SHA256_Transform(state, blocks)
    if padded > BLOCK:
        SHA256_Transform(state, blocks + BLOCK)


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
        cdef Py_ssize_t whole = size & ~(BLOCK - 1)
        cdef uint32_t digest[8]
        cdef const unsigned char *total = <const unsigned char *> digest
        cdef const char *hexadecimal = "0123456789abcdef"
        cdef int i
        SHA256_Update(&state, body, <size_t> whole)
        _finish(&state, body + whole, size - whole, BLOCK + size)
        for i in range(8):
            digest[i] = htobe32(state.h[i])
        state = self._outer
        _finish(&state, digest, 32, BLOCK + 32)
        digest[0], digest[1] = htobe32(state.h[0]), htobe32(state.h[1])
        for i in range(SUM):
            digits[2 * i] = hexadecimal[total[i] >> 4]
            digits[2 * i + 1] = hexadecimal[total[i] & 15]

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
