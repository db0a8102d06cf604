"""Makes messages of frames of the local bus: ``MSG <key>NUL<src>:<seq>:<received_ns>:<peer>|<payload>``."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyTypeObject
from libc.string cimport memchr, memcmp

cdef extern from "Python.h":
    object PyType_GenericAlloc(PyTypeObject *kind, Py_ssize_t items)

cdef enum:
    # channels that are kept, and the longest key of one
    CHANNELS = 512
    LONGEST = 1024
    # digits of a number
    DIGITS = 20


cdef inline const char *_find(const char *start, char byte, const char *end) noexcept:
    return <const char *> memchr(start, byte, <size_t> (end - start))


cdef inline const char *_number_end(const char *start, const char *end) noexcept:
    """Return where a number ends that a colon follows; NULL if there is none."""
    cdef const char *at = start
    while at < end and b"0" <= at[0] <= b"9":
        at += 1
    return at if at < end and at[0] == b":" and 0 < at - start <= DIGITS else NULL


@cython.final
cdef class MessageReader:
    """``kind`` is the class of messages. ``channel`` returns of a key its text, the form of messages on it, and whether
    they carry metadata."""

    def __init__(self, type kind not None, channel):
        self._kind = kind
        self._channel = channel
        self._channels = {}

    cpdef object read(self, bytes frame):
        """Return the message in a frame; None if it is no message with metadata."""
        cdef const char *text = PyBytes_AS_STRING(frame)
        cdef const char *end = text + PyBytes_GET_SIZE(frame)
        cdef const char *nul
        cdef const char *bar
        cdef const char *at
        cdef tuple channel
        if end - text < 5 or memcmp(text, b"MSG ", 4):
            return None
        nul = _find(text + 4, 0, end)
        bar = _find(nul + 1, b"|", end) if nul != NULL else NULL
        at = _find(nul + 1, b":", bar) if bar != NULL else NULL
        at = _number_end(at + 1, bar) if at != NULL else NULL
        at = _number_end(at + 1, bar) if at != NULL else NULL
        if at == NULL:
            return None
        channel = self._channel_of(PyBytes_FromStringAndSize(text + 4, nul - text - 4))
        if not channel[2]:
            return None
        message = PyType_GenericAlloc(<PyTypeObject *> self._kind, 0)
        message.chan = channel[0]
        message.form = channel[1]
        message.payload = PyBytes_FromStringAndSize(bar + 1, end - bar - 1)
        message._head = PyBytes_FromStringAndSize(nul + 1, bar - nul - 1)
        return message

    cdef tuple _channel_of(self, bytes key):
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channel(key)
            if len(key) <= LONGEST:
                if len(self._channels) >= CHANNELS:
                    self._channels.clear()
                self._channels[key] = channel
        return channel
