"""Reads and writes what publishers and subscribers of the TCP broker exchange.

A publication (UDP) is ``topic[50] type[1] content[0..1500]``. A subscriber (TCP) sends its ``id[11]``, then requests
``type[1] topic[51]``, and gets messages ``ip:port[50] topic[51] type[1] data[1501]``. Text ends at the first NUL, or
where its field ends; numbers are big-endian. Source: the broker, "Protocol Design"; values in docs/broker.md.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

INT, SHORT_REAL, FLOAT, STRING = range(4)
SUBSCRIBE, UNSUBSCRIBE, DISCONNECT = range(3)

#: limits of a topic and of a content
MAX_TOPIC: Final = 50
MAX_CONTENT: Final = 1500
MAX_PUBLICATION: Final = MAX_TOPIC + 1 + MAX_CONTENT
#: sizes of an id, a request and a message to a subscriber
HELLO: Final = 11
REQUEST: Final = 52
MESSAGE: Final = 1603

_REQUEST: Final = struct.Struct("!B51s")
_MESSAGE: Final = struct.Struct("!50s51sB1501s")
#: sign (1 for negative) and value; hundredths; sign, value and number of decimals
_NUMBERS: Final = {INT: struct.Struct("!BI"), SHORT_REAL: struct.Struct("!H"), FLOAT: struct.Struct("!BIB")}


class Publication(NamedTuple):
    """A publisher's message; ``value`` is its content as text."""

    topic: bytes
    kind: int
    content: bytes
    value: bytes


def read_text(field: bytes) -> bytes:
    """Return a field up to the first NUL."""
    return field.partition(b"\0")[0]


def read_value(kind: int, content: bytes) -> bytes | None:
    """Return a value as exact text; None for an unknown type, an invalid sign or too few bytes. More are ignored: some
    publishers send their whole buffer."""
    if kind == STRING:
        return read_text(content)
    number = _NUMBERS.get(kind)
    if number is None or len(content) < number.size:
        return None
    fields = number.unpack_from(content)
    sign, value, decimals = (0, *fields, 2) if kind == SHORT_REAL else (*fields, 0)[:3]
    if sign > 1:
        return None
    digits = b"%d" % value
    if decimals:
        digits = digits.rjust(decimals + 1, b"0")
        digits = digits[:-decimals] + b"." + digits[-decimals:]
    return b"-" + digits if sign and value else digits


def read_publication(datagram: bytes) -> Publication | None:
    """Read a publisher's datagram; None if it is no publication."""
    if not MAX_TOPIC < len(datagram) <= MAX_PUBLICATION:
        return None
    kind, content = datagram[MAX_TOPIC], datagram[MAX_TOPIC + 1 :]
    value = read_value(kind, content)
    return None if value is None else Publication(read_text(datagram[:MAX_TOPIC]), kind, content, value)


def read_request(field: bytes) -> tuple[int, bytes] | None:
    """Return kind and topic of a request, None for an unknown kind. The topic may be empty, or a byte too long."""
    kind, topic = _REQUEST.unpack(field)
    return None if kind > DISCONNECT else (kind, read_text(topic))


def message(peer: str, topic: bytes, kind: int, content: bytes) -> bytes:
    """Build a message to a subscriber; what is too long for its field is cut."""
    return _MESSAGE.pack(peer.encode("ascii", "replace")[:49], topic, kind, content[:MAX_CONTENT])
