"""Files that a daemon left for its successor, possibly damaged: clients' logs, in-flight input, logs of version 1.0."""

from __future__ import annotations

import struct
from functools import cache
from mmap import mmap
from typing import Final

from bccnd.core.formats import client_log_format as log_format
from bccnd.handover.earlier_version import MAGIC, convert
from bccnd.native.memory import inflight_layout as layout
from bccnd.native.memory.private_memory import private_memory
from tests.core.tracker_hosts import Host
from tests.rules import dedup_rules, heartbeat_rules

#: between the files of an input
SPLIT: Final = b"\n--\n"
_NOW: Final = 1000.0
_RULES: Final = dedup_rules(sanity=16, horizon=1.0, max_sources=4)
_RECORD: Final = struct.Struct("=IBQd")
_HEADER: Final = MAGIC + struct.pack("=I", 1)


def tracker_log(data: bytes) -> object:
    """Logs of version 1.0, or records from the second byte on: converted as far as they are whole, within the tables'
    bounds."""
    files = data.split(SPLIT)[:2]
    if data[:1] == b"\1":  # notes that are framed as they should be
        notes = data[1:]
        files = [_HEADER + _RECORD.pack(len(notes) + _RECORD.size - 4, 1, 7, 5.0) + notes]
    memory = private_memory(4000)
    problems = convert(files, memory, _RULES, heartbeat_rules(interval=1.0, dead_after=3), _NOW, skip=len(data) % 3)
    heir = Host(_RULES, now=_NOW, memory=memory)
    heir.load()
    sources = heir.sources
    known = [(one.src, one.first, one.last, one.epoch, one.missing, one.absent) for one in sources.latest(10)]
    heir.until(_NOW + 4)  # and life goes on
    assert len(sources) <= _RULES.max_sources
    for src, _, last, *_ in known:
        sources.judge(src, min(last + 1, 2**64 - 1), _NOW + 5)
    return problems, known


def client_log(data: bytes) -> object:
    """Records of a client: read as far as they are whole, and the same again from what was read."""
    raw = log_format.pack_head(program="p", started=1) + data[1:] if data[:1] == b"\1" else data
    found = log_format.read_image(raw)
    assert found.size <= len(raw)
    again = log_format.read_image(raw[: found.size])
    assert (again.head, again.records, again.size) == (found.head, found.records, found.size)
    numbers = [log_format.read_counts(one) for one in found.records if one.kind == log_format.COUNTS]
    return found, numbers, [one.delivered for one in found.records]


@cache
def _inflight() -> mmap:
    return mmap(-1, layout.SIZE)


_PLACES: Final = (
    *(layout.AT_SERIAL, layout.AT_SENDING, layout.AT_TRIED, layout.SINGLE_HEADER, layout.PACKETS, layout.CASTS),
    *(layout.INBOX, layout.INBOX_DATA, layout.SEGMENT, layout.SEGMENT + layout.SEGMENT_HEADERS),
    *(layout.SEGMENT + layout.SEGMENT_SIZE, layout.SEGMENT + layout.SEGMENT_CONTROL, layout.SLOTS, 0),
)


def inflight(data: bytes) -> object:
    """An in-flight record with pieces of the input in its fields: its input is found, or none."""
    memory = _inflight()
    written: list[tuple[int, int]] = []
    layout.initialize(memory)
    layout.write_number(memory, layout.AT_OPEN, 1)
    try:
        while len(data) > 3:
            place = _PLACES[data[0] % len(_PLACES)] + (data[1] & 0x7F) * 8
            piece = data[3 : 3 + data[2]]
            memory[place : place + len(piece)] = piece
            written.append((place, len(piece)))
            data = data[3 + data[2] :]
        found = layout.read_unfinished(memory)
        shown = None if found is None else (found.kind, found.number, found.datagrams, found.stamps, len(found.packet))
        casts = [layout.was_broadcast(memory, number) for number in (0, layout.MAX_SEGMENTS - 1)]
        return shown, layout.read_sending(memory), layout.is_valid(memory), casts, layout.read_slot(memory, 0)
    finally:
        for place, size in written:
            memory[place : place + size] = bytes(size)
        memory[:256] = bytes(256)
