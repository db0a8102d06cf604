"""What publishers and subscribers of the TCP broker send and get <-> bytes.

Law: bytes in, values out, and None for what is none; a value is never brought through a binary fraction, so that its
text is exact. Source: the broker, "Protocol Design".

A publication (UDP) is ``topic[50] type[1] content[0..1500]``. A subscriber (TCP) sends its ``id[11]``, then requests
``type[1] topic[51]``, and gets messages ``ip:port[50] topic[51] type[1] data[1501]``. Text ends at the first NUL, or
where its field ends; numbers have the highest byte first.

====  ===========  ==================================  ===========================================
type  name         content                             shown as
====  ===========  ==================================  ===========================================
0     INT          sign[1] value[4]                    a whole number
1     SHORT_REAL   hundredths[2]                       two decimals
2     FLOAT        sign[1] value[4] power[1]           value / 10^power, with ``power`` decimals
3     STRING       text                                text
====  ===========  ==================================  ===========================================

A sign is 0 or 1 (less than nothing); there is no minus before a zero. What follows a number is left alone: there are
publishers that send their whole buffer.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

INT: Final = 0
SHORT_REAL: Final = 1
FLOAT: Final = 2
STRING: Final = 3
#: the names of the types, by their numbers
TYPE_NAMES: Final = ("INT", "SHORT_REAL", "FLOAT", "STRING")

SUBSCRIBE: Final = 0
UNSUBSCRIBE: Final = 1
DISCONNECT: Final = 2

#: bytes of a topic at most; and of a value
MAX_TOPIC: Final = 50
MAX_CONTENT: Final = 1500
#: bytes of what a subscriber says first, of each of its requests, and of a message to it
HELLO: Final = 11
REQUEST: Final = 52
MESSAGE: Final = 1603
#: bytes of a publication at most
MAX_PUBLICATION: Final = MAX_TOPIC + 1 + MAX_CONTENT
#: of an address behind which a NUL stands
_MAX_PEER: Final = 49

_REQUEST: Final = struct.Struct("!B51s")
_MESSAGE: Final = struct.Struct("!50s51sB1501s")
_INT: Final = struct.Struct("!BI")
_SHORT_REAL: Final = struct.Struct("!H")
_FLOAT: Final = struct.Struct("!BIB")


class Publication(NamedTuple):
    """What a publisher sends; ``value`` is the content as text."""

    topic: bytes
    kind: int
    content: bytes
    value: bytes


class Delivered(NamedTuple):
    """What a subscriber gets; ``kind`` is one of the four types."""

    peer: bytes
    topic: bytes
    kind: int
    value: bytes


def _text(field: bytes) -> bytes:
    """Up to the first NUL."""
    return field.partition(b"\0")[0]


# -- values


def read_value(kind: int, content: bytes) -> bytes | None:
    """A value as text; None for a type that there is not, a sign that is none, or too few bytes."""
    if kind == STRING:
        return _text(content)
    if kind == INT and len(content) >= _INT.size:
        sign, value = _INT.unpack_from(content)
        return _decimal(sign, value, 0)
    if kind == SHORT_REAL and len(content) >= _SHORT_REAL.size:
        return _decimal(0, _SHORT_REAL.unpack_from(content)[0], 2)
    if kind == FLOAT and len(content) >= _FLOAT.size:
        sign, value, power = _FLOAT.unpack_from(content)
        return _decimal(sign, value, power)
    return None


def _decimal(sign: int, value: int, decimals: int) -> bytes | None:
    if sign > 1:
        return None
    digits = b"%d" % value
    if decimals:
        digits = digits.rjust(decimals + 1, b"0")
        digits = digits[:-decimals] + b"." + digits[-decimals:]
    return b"-" + digits if sign and value else digits


# -- publications


def read_publication(datagram: bytes) -> Publication | None:
    """Read what a publisher has sent; None if that is no publication."""
    if not MAX_TOPIC < len(datagram) <= MAX_PUBLICATION:
        return None
    kind, content = datagram[MAX_TOPIC], datagram[MAX_TOPIC + 1 :]
    value = read_value(kind, content)
    return None if value is None else Publication(_text(datagram[:MAX_TOPIC]), kind, content, value)


def publication(topic: bytes, kind: int, content: bytes) -> bytes:
    """A publication, as it is sent."""
    return topic.ljust(MAX_TOPIC, b"\0") + bytes([kind]) + content


# -- what subscribers say


def hello(name: bytes) -> bytes:
    """An id, as it is sent."""
    return name.ljust(HELLO, b"\0")


def read_hello(field: bytes) -> bytes:
    """The id that was sent; empty if there is none."""
    return _text(field)


def request(kind: int, topic: bytes = b"") -> bytes:
    """A request, as it is sent."""
    return _REQUEST.pack(kind, topic)


def read_request(field: bytes) -> tuple[int, bytes] | None:
    """Kind and topic of a request; None for a kind that there is not. The topic may be empty, or a byte too long."""
    kind, topic = _REQUEST.unpack(field)
    return None if kind > DISCONNECT else (kind, _text(topic))


# -- what subscribers get


def message(peer: str, topic: bytes, kind: int, content: bytes) -> bytes:
    """A message to a subscriber; what is too long for its field is cut."""
    return _MESSAGE.pack(peer.encode("ascii", "replace")[:_MAX_PEER], topic, kind, content[:MAX_CONTENT])


def read_message(field: bytes) -> Delivered | None:
    """Read a message; None if its value is none."""
    peer, topic, kind, content = _MESSAGE.unpack(field)
    value = read_value(kind, content)
    return None if value is None else Delivered(_text(peer), _text(topic), kind, value)
