"""Record format of a client's state: identity, subscriptions, settings and send queue.

Replaying the records restores the state. They can be read at any moment: an incomplete record at the end is ignored,
and a second `HEAD` begins an image that was not finished. Unknown kinds are skipped and reported. A log of another
version is read in the same way, so a kind never changes its meaning.

A record is its kind (1 byte), the length of its body (4), the serial of the input that it belongs to (8), a number (8),
all little endian, and the body.

================  ====================================================  ==========================================
kind              body                                                  number
================  ====================================================  ==========================================
``HEAD``          JSON: ``version``, and the client's identity
``SUBSCRIBED``    a pattern                                             how many times
``UNSUBSCRIBED``  a pattern                                             how many times
``REQUESTED``     a control message that changed a setting
``QUEUED``        a frame that was queued                               messages of the input delivered so far
``DROPPED``       messages of the input delivered so far (8 bytes)      messages dropped at the end of the queue
``HEAD_DROPPED``                                                        1: a message dropped at its start
``SENT``                                                                entries taken from the queue
``BLOCKED``       a packet from the client that is blocked
``RESUMED``       (empty: the blocked packet was tried again)
``COUNTS``        JSON: counters
================  ====================================================  ==========================================
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from bccnd.core.formats.strict_json import parse_json

VERSION: Final = 1

HEAD: Final = 1
SUBSCRIBED: Final = 2
UNSUBSCRIBED: Final = 3
REQUESTED: Final = 4
QUEUED: Final = 5
DROPPED: Final = 6
HEAD_DROPPED: Final = 7
SENT: Final = 8
BLOCKED: Final = 9
RESUMED: Final = 10
COUNTS: Final = 11
_KINDS: Final = range(HEAD, COUNTS + 1)
#: kinds that are skipped for an input that is processed again
REPEATED_WITH_INPUT: Final = frozenset((SUBSCRIBED, UNSUBSCRIBED, REQUESTED, BLOCKED, RESUMED))

_RECORD: Final = struct.Struct("<BIQQ")
_NUMBER: Final = struct.Struct("<Q")
#: the largest body: a packet of the bus
_MAX_BODY: Final = 1 << 20


class Record(NamedTuple):
    kind: int
    serial: int
    number: int
    body: bytes

    @property
    def delivered(self) -> int:
        """Of `QUEUED` and `DROPPED`: messages of the input delivered so far, including this one."""
        if self.kind == QUEUED:
            return self.number
        return int(_NUMBER.unpack(self.body)[0]) if self.kind == DROPPED and len(self.body) == _NUMBER.size else 0


def pack_record(kind: int, body: bytes = b"", number: int = 0, serial: int = 0) -> bytes:
    return _RECORD.pack(kind, len(body), serial, number) + body


def pack_dropped(count: int, delivered: int = 0, serial: int = 0) -> bytes:
    return pack_record(DROPPED, _NUMBER.pack(delivered), count, serial)


def pack_queue_entry(entry: bytes | int) -> bytes:
    """Build the record of a queue entry: a frame, or a number of missing messages."""
    return pack_dropped(entry) if isinstance(entry, int) else pack_record(QUEUED, entry)


def pack_head(**fields: Any) -> bytes:
    return pack_record(HEAD, json.dumps({"version": VERSION, **fields}).encode("ascii"))


def pack_counts(**numbers: int) -> bytes:
    return pack_record(COUNTS, json.dumps(numbers).encode("ascii"))


class ClientImage(NamedTuple):
    """The client's identity, its records, their size in bytes, and what was not understood."""

    head: dict[str, Any]
    records: list[Record]
    size: int
    unknown: list[str]


def read_image(data: bytes) -> ClientImage:
    """Parse records; without a head there are none."""
    unknown: list[str] = []
    records: list[Record] = []
    identity: dict[str, Any] = {}
    size = 0
    for one, end in _split(data):
        if not size:
            identity = _read_json(one.body) if one.kind == HEAD else {}
            version = identity.get("version", "unknown")
            if version != VERSION:
                unknown = [f"its log has version {version}"]
            if not isinstance(version, int):
                return ClientImage({}, [], 0, unknown)
        elif one.kind == HEAD:
            break
        elif one.kind in _KINDS:
            records.append(one)
        else:
            unknown.append(f"a record of unknown kind {one.kind}")
        size = end
    return ClientImage(identity, records, size, unknown)


def _split(data: bytes) -> Iterator[tuple[Record, int]]:
    at = 0
    while at + _RECORD.size <= len(data):
        kind, size, serial, number = _RECORD.unpack_from(data, at)
        start, at = at + _RECORD.size, at + _RECORD.size + size
        if size > _MAX_BODY or at > len(data):
            break
        yield Record(kind, serial, number, data[start:at]), at


def read_counts(one: Record) -> dict[str, Any]:
    """Return the counters of a `COUNTS` record."""
    return _read_json(one.body)


def _read_json(body: bytes) -> dict[str, Any]:
    try:
        found = parse_json(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
