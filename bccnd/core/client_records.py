"""What is known of a client, as records one behind the other: who it is, what it has asked for, what waits for it.

Law: whoever reads the records lives through the same again. They can be read at any moment: one that is cut off at the
end was never written, and a second `HEAD` begins an image that was not finished. Kinds that a reader does not know are
left out and named.

A record is its kind (1 byte), the length of its body (4), the serial of the input that it belongs to (8), a number (8),
all with the lowest byte first, and the body.

==============  =====================================================  ==========================================
kind            body                                                   number
==============  =====================================================  ==========================================
``HEAD``        JSON: ``version``, and who the client is
``HOLDS``       a pattern that it subscribed to                        how many times
``DROPS``       a pattern that it gave up, or had to                   how many times
``ASKED``       a control message that changed how it is served
``PUT``         a frame that was put in its queue                      messages of the input it has got so far
``LOST``                                                               how many it lost, behind the others
``LOST_HERE``                                                          1: one it lost, before the others
``TOOK``                                                               entries of the queue that it took
``WAITS``       a packet of its own that has to wait
``GOES_ON``     that one was tried again
``COUNTS``      JSON: numbers to go on from
==============  =====================================================  ==========================================

`LOST` has in its body the messages of the input that it has got so far (8 bytes).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

VERSION: Final = 1

HEAD: Final = 1
HOLDS: Final = 2
DROPS: Final = 3
ASKED: Final = 4
PUT: Final = 5
LOST: Final = 6
LOST_HERE: Final = 7
TOOK: Final = 8
WAITS: Final = 9
GOES_ON: Final = 10
COUNTS: Final = 11
_KINDS: Final = range(HEAD, COUNTS + 1)
#: what belongs to an input that is worked through again as a whole, and so must not be done twice
OF_THE_INPUT: Final = frozenset((HOLDS, DROPS, ASKED, WAITS, GOES_ON))

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
    def got(self) -> int:
        """Of `PUT` and `LOST`: messages of the input that the client has got, this one counted."""
        if self.kind == PUT:
            return self.number
        return int(_NUMBER.unpack(self.body)[0]) if self.kind == LOST and len(self.body) == _NUMBER.size else 0


def record(kind: int, body: bytes = b"", number: int = 0, serial: int = 0) -> bytes:
    return _RECORD.pack(kind, len(body), serial, number) + body


def lost(count: int, got: int = 0, serial: int = 0) -> bytes:
    return record(LOST, _NUMBER.pack(got), count, serial)


def waiting(entry: bytes | int) -> bytes:
    """What waits in a queue: a frame, or the number of messages that are missing there."""
    return lost(entry) if isinstance(entry, int) else record(PUT, entry)


def head(**who: Any) -> bytes:
    return record(HEAD, json.dumps({"version": VERSION, **who}).encode("ascii"))


def counts(**numbers: int) -> bytes:
    return record(COUNTS, json.dumps(numbers).encode("ascii"))


class Tape(NamedTuple):
    """What was read: who the client is, the records behind that, how many bytes all of that has, and what was not
    understood."""

    head: dict[str, Any]
    records: list[Record]
    size: int
    strange: list[str]


def read(data: bytes) -> Tape:
    """Take records apart again; a tape without a head that we understand has no records."""
    strange: list[str] = []
    records: list[Record] = []
    who: dict[str, Any] = {}
    size = 0
    for one, end in _split(data):
        if not size:
            who = _read_json(one.body) if one.kind == HEAD else {}
            if who.get("version") != VERSION:
                return Tape({}, [], 0, [f"what is known of a client has version {who.get('version', 'unknown')}"])
        elif one.kind == HEAD:
            break
        elif one.kind in _KINDS:
            records.append(one)
        else:
            strange.append(f"a record of unknown kind {one.kind}")
        size = end
    return Tape(who, records, size, strange)


def _split(data: bytes) -> Iterator[tuple[Record, int]]:
    at = 0
    while at + _RECORD.size <= len(data):
        kind, size, serial, number = _RECORD.unpack_from(data, at)
        start, at = at + _RECORD.size, at + _RECORD.size + size
        if size > _MAX_BODY or at > len(data):
            break
        yield Record(kind, serial, number, data[start:at]), at


def read_counts(one: Record) -> dict[str, Any]:
    """The numbers of a `COUNTS` record."""
    return _read_json(one.body)


def _read_json(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
