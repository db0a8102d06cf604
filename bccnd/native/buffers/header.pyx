"""Finds the fields of a datagram's body: ``<src>:<seq>:<chan>|<payload>``. Source: BCCN, WIRE FORMAT.

Nothing is copied, and no byte outside the argument is read. The characters of src and channel are checked elsewhere.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memchr


cdef inline const char *_find(const char *start, char byte, const char *end) noexcept:
    return <const char *> memchr(start, byte, <size_t> (end - start))


@cython.final
cdef class Header:
    """Where the fields of the last parsed datagram are: src is ``raw[src:src_end]``, the channel ``raw[chan:bar]``, and
    the payload begins behind ``bar``. ``seq_valid`` tells whether ``seq`` is a number of 64 bits in decimal digits."""

    cpdef bytes src_of(self, bytes raw):
        """Return the src of the parsed datagram."""
        return raw[self.src : self.src_end]

    cpdef bint parse(self, bytes raw, Py_ssize_t at) noexcept:
        """Find the fields of the body that begins at ``at``; False unless there are just three before the bar."""
        cdef const char *text = PyBytes_AS_STRING(raw)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(raw)
        cdef const char *bar
        cdef const char *first
        cdef const char *second
        if not 0 <= at <= size:
            return False
        bar = _find(text + at, b"|", text + size)
        if bar == NULL:
            return False
        first = _find(text + at, b":", bar)
        if first == NULL:
            return False
        second = _find(first + 1, b":", bar)
        if second == NULL or _find(second + 1, b":", bar) != NULL:
            return False
        self.src = at
        self.src_end = first - text
        self.chan = second + 1 - text
        self.bar = bar - text
        self.seq_valid = self._read_seq(first + 1, second)
        return True

    cdef bint _read_seq(self, const char *at, const char *end) noexcept:
        """Read a number of 64 bits, with any number of leading zeros."""
        cdef unsigned long long value = 0
        cdef unsigned int digit
        self.seq = 0
        if at == end:
            return False
        while at < end:
            digit = <unsigned int> (<unsigned char> at[0]) - 48
            # Beyond a tenth of the highest number, the next digit may be too much.
            if digit > 9 or value > 0x1999999999999999 or (value == 0x1999999999999999 and digit > 5):
                return False
            value = value * 10 + digit
            at += 1
        self.seq = value
        return True
