"""Files that a daemon left for its successor: tracker log, client logs, in-flight input; all possibly damaged."""

from __future__ import annotations

import struct
from functools import cache
from mmap import mmap
from typing import Final

from bccnd.core import client_log_format as log_format
from bccnd.core import tracker_log as tracker_log_format
from bccnd.core.anonymous_dedup import AnonymousDedup
from bccnd.core.dedup import DedupRules, TrackerTable
from bccnd.core.liveness import Liveness, LivenessRules
from bccnd.core.tracker_replay import replay
from bccnd.native import inflight_layout as layout

#: between the files of an input
SPLIT: Final = b"\n--\n"
_NOW: Final = 1000.0
_RULES: Final = DedupRules(sanity=16, horizon=1.0, max_sources=4)
_RECORD: Final = struct.Struct("=IBQd")


def tracker_log(data: bytes) -> object:
    """A tracker log, or records from the second byte on: replayed as far as it is whole, within the tables' bounds."""
    files = data.split(SPLIT)[:2]
    if data[:1] == b"\1":  # notes that are framed as they should be
        notes = data[1:]
        record = _RECORD.pack(len(notes) + _RECORD.size - 4, 1, 7, 5.0) + notes
        files = [tracker_log_format.MAGIC + struct.pack("=I", tracker_log_format.VERSION) + record]
    sources, anonymous = TrackerTable(_RULES), AnonymousDedup(2.0)
    watch = Liveness(sources, LivenessRules(interval=1.0, dead_after=3), _NOW)
    found = replay(files, sources, anonymous, watch, now=_NOW, clock_us=10**15, skip_serial=len(data) % 3)
    assert len(sources) <= _RULES.max_sources
    known = [(one.src, one.first, one.last, one.epoch, one.missing, one.absent) for one in sources.latest(10)]
    for step in range(4):  # and life goes on
        sources.sweep(_NOW + step)
        watch.sweep(_NOW + step)
    for src, _, last, *_ in known:
        sources.judge(src, min(last + 1, 2**64 - 1), _NOW + 5)
    return vars(found), known


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
