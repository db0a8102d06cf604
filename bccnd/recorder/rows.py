"""The rows that a packet of the tap becomes.

Invariant: rows depend on the bytes of a packet alone: a later reader of a log counts and numbers the same rows as its
writer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from bccnd.core.formats.strict_json import parse_json
from bccnd.core.formats.tap_record import Observation, observe
from bccnd.core.wire import frames
from bccnd.errors import BadFrame

_BATCH: Final = b"MSGS "
_TAPPED: Final = re.compile(rb"MSG !/tap/([^\0]{0,64})\0([^:|]{0,256}):([0-9]{1,10}):([0-9]{1,20}):([^|]{0,80})\|")
_GAP: Final = b"CMSG %b\0" % frames.GAP
#: the largest number of a column of 32 bits
_MOST: Final = 2**31 - 1


def tapped(packet: bytes) -> list[re.Match[bytes]]:
    """Return a match for each datagram in a packet of the tap; the datagram begins at its end. Raises BadFrame."""
    messages = frames.read_batch(packet) if packet.startswith(_BATCH) else [packet]
    return [match for match in map(_TAPPED.match, messages) if match is not None]


def received(datagram: re.Match[bytes]) -> int:
    """Return when a datagram of `tapped` was received, in microseconds since 1970."""
    return int(datagram[4]) // 1000


def gap_in(packet: bytes) -> int:
    """Return the number of messages that a gap announces, 1 for an unknown number; 0 for any other packet."""
    digits = packet[len(_GAP) :] if packet.startswith(_GAP) else b""
    return max(1, int(digits)) if digits.isdigit() and len(digits) < 19 else 0


@lru_cache(4096)
def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def observations(packet: bytes) -> list[Observation]:
    """Return the rows of a packet; none for one that cannot be read."""
    try:
        datagrams = tapped(packet)
    except BadFrame:
        return []
    rows = []
    for match in datagrams:
        verdict, segment, epoch, received_ns, peer = match.groups()
        names, number, datagram = (_text(verdict), _text(segment)), min(int(epoch), _MOST), match.string[match.end() :]
        rows.append(observe(*names, number, int(received_ns), _text(peer), datagram))
    return rows


# -- rows as bytes, where the log must not hold what came

_MAYBE: Final = str | None
#: of the fields of an observation, the payload as text
_KINDS: Final = (int, str, str, int, str, *[_MAYBE] * 3, int | None, int, *[_MAYBE] * 2, int, _MAYBE)


def pack(rows: Iterable[Observation]) -> bytes:
    return json.dumps(
        [[*row[:-1], None if row.payload is None else row.payload.decode("latin-1")] for row in rows]
    ).encode()


def unpack(data: bytes) -> list[Observation]:
    """Return the rows that `pack` made these bytes of. Raises ValueError."""
    unpacked = parse_json(data)
    if not isinstance(unpacked, list) or not all(map(_is_row, unpacked)):
        raise ValueError("no rows")
    payloads = [None if row[-1] is None else row[-1].encode("latin-1") for row in unpacked]
    return [Observation._make([*row[:-1], payload]) for row, payload in zip(unpacked, payloads, strict=True)]


def _is_row(row: object) -> bool:
    return isinstance(row, list) and len(row) == len(_KINDS) and all(map(isinstance, row, _KINDS))
