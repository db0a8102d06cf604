"""Dictionary with bytes as keys, which are looked up as slices of a buffer without a copy.

It consists of many small dictionaries, because rebuilding a large one takes tens of milliseconds with 100,000 entries.
The cache in front has a weak hash: keys that collide only make it useless.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_SIZE
from libc.stdint cimport uint64_t
from libc.string cimport memcmp, memcpy

cdef extern from "Python.h":
    PyObject *PyDict_GetItemWithError(object dictionary, object key) except? NULL

# Expected entries per dictionary. A dictionary of more than 341 entries takes room for 1,365; nearly all stay below, at
# 31 bytes an entry. Rebuilding one takes some 10 us.
PER_SHARD = 300
cdef enum:
    # longer keys are not cached
    LONGEST = 256
    # one of so many misses is cached, so that keys that never come again cost little
    ONE_IN = 8
    SLOT_BITS = 10


cdef inline Py_ssize_t _slot(const char *text, Py_ssize_t size) noexcept:
    """Hash a key by its end, where similar names differ; return its place in the cache, before that of its value."""
    cdef uint64_t word = 0
    cdef Py_ssize_t taken = size if size < 8 else 8
    memcpy(&word, text + size - taken, <size_t> taken)
    return <Py_ssize_t> ((word + <uint64_t> size) * <uint64_t> 0x9E3779B97F4A7C15 >> 64 - SLOT_BITS) * 2


@cython.final
cdef class Index:
    """The dictionary. Values are not None."""

    def __init__(self, Py_ssize_t expected=0):
        """``expected`` is the approximate number of entries."""
        self._shards = tuple([{} for _ in range(1 + expected // PER_SHARD)])
        self._count = 0
        self._cache = None
        self._misses = 0

    def __len__(self):
        return self._count

    cdef dict _shard(self, bytes key):
        return <dict> self._shards[<size_t> hash(key) % <size_t> PyTuple_GET_SIZE(self._shards)]

    cpdef object get(self, bytes key):
        """Return the value of a key, or None."""
        return self._shard(key).get(key)

    cpdef object get_slice(self, bytes raw, Py_ssize_t start, Py_ssize_t end):
        """Return the value of ``raw[start:end]``, or None. Raises IndexError for a slice outside ``raw``."""
        cdef Py_ssize_t size = end - start
        cdef Py_ssize_t slot
        cdef const char *text
        cdef bytes key
        if not 0 <= start <= end <= PyBytes_GET_SIZE(raw):
            raise IndexError("outside the bytes")
        if size > LONGEST:
            return self.get(raw[start:end])
        text = PyBytes_AS_STRING(raw) + start
        slot = _slot(text, size)
        if self._cache is not None:
            key = self._cache[slot]
            if key is not None and PyBytes_GET_SIZE(key) == size and not memcmp(PyBytes_AS_STRING(key), text, size):
                return self._cache[slot + 1]
        return self._look(text, size, slot)

    cdef object _look(self, const char *text, Py_ssize_t size, Py_ssize_t slot):
        """Look a key up in its dictionary."""
        cdef bytes key = PyBytes_FromStringAndSize(text, size)
        cdef PyObject *found = PyDict_GetItemWithError(self._shard(key), key)
        if found == NULL:
            return None
        self._misses += 1
        if self._misses % ONE_IN == 0:
            if self._cache is None:
                self._cache = [None] * (2 << SLOT_BITS)
            self._cache[slot] = key
            self._cache[slot + 1] = <object> found
        return <object> found

    cdef _drop(self, bytes key):
        """Remove a key from the cache."""
        cdef Py_ssize_t slot
        if self._cache is not None and PyBytes_GET_SIZE(key) <= LONGEST:
            slot = _slot(PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))
            if self._cache[slot] == key:
                self._cache[slot] = self._cache[slot + 1] = None

    cpdef put(self, bytes key, object value):
        cdef dict shard = self._shard(key)
        self._drop(key)
        self._count -= len(shard)
        shard[key] = value
        self._count += len(shard)

    cpdef object pop(self, bytes key):
        """Remove a key and return its value, or None."""
        value = self._shard(key).pop(key, None)
        self._drop(key)
        self._count -= value is not None
        return value

    cpdef Py_ssize_t shards(self):
        """Return the number of dictionaries."""
        return PyTuple_GET_SIZE(self._shards)

    cpdef list values(self, Py_ssize_t shard):
        """Return the values of one dictionary. Raises IndexError for an invalid number.

        A key stays in its dictionary, so iterating over them finds each lasting entry once although others change."""
        if not 0 <= shard < PyTuple_GET_SIZE(self._shards):
            raise IndexError("no such shard")
        return list((<dict> self._shards[shard]).values())
