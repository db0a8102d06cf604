"""What a daemon left for its successor, possibly damaged: an image, trackers in it, and the record of a client."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bccnd.core.formats.image_sections import BYTES, Column, Section, pack_section
from bccnd.core.tracking.liveness import HeartbeatRules
from bccnd.core.wire import frames
from bccnd.handover.descriptor_store import CLIENT_HEAD, CLIENT_MAGIC, ClientRecord
from bccnd.handover.image import BadImage, read_image, write_image
from tests.core.tracker_hosts import SRCS, Host, resumed
from tests.rules import dedup_rules

_NOW: Final = 1000.0
_RULES: Final = dedup_rules(sanity=16, horizon=1.0, max_sources=4)
_ROW: Final = struct.Struct("<BBHI")


@contextmanager
def _file(data: bytes = b"") -> Iterator[int]:
    fd = os.memfd_create("fuzz", os.MFD_CLOEXEC)
    try:
        os.pwrite(fd, data, 0)
        yield fd
    finally:
        os.close(fd)


def image(data: bytes) -> object:
    """A file is an image or none. One that was written is read, and none any more once a byte of it has changed."""
    with _file(data) as fd:
        outcome = _read(fd)
    with _file() as fd:
        pieces = data.split(b"\n")
        write_image(fd, [Section("pieces", {"count": len(pieces)}, {"piece": (BYTES, pieces)})])
        size = os.fstat(fd).st_size  # before it is read, which leaves a note behind it
        found = _read(fd)
        assert isinstance(found, list)
        assert found[0].fields["count"] == len(pieces)
        assert found[0].column("piece", b"", 0) == pieces
        place = int.from_bytes(data[:2], "little") % size
        os.pwrite(fd, bytes([os.pread(fd, 1, place)[0] ^ (data[2] if data[2:3].strip(b"\0") else 1)]), place)
        assert isinstance(_read(fd), str)
    return outcome if isinstance(outcome, str) else len(outcome), size


def _read(fd: int) -> list[Section] | str:
    try:
        return list(read_image(fd))
    except BadImage as bad:
        return str(bad)


def trackers(data: bytes) -> object:
    """Sources of a daemon of another version, which lack columns, come twice or have other windows: all are within the
    tables' bounds, and life goes on."""
    absent, shuffled = data[:1] or b"\0", data[1:2]
    rows = list(_ROW.iter_unpack(data[2 : 2 + len(data[2:]) // _ROW.size * _ROW.size]))
    lasts = [1 << (who >> 3) for who, *_ in rows]
    windows = [window & (1 << min(back, 32)) - 1 & ~1 for _, _, back, window in rows]
    columns: dict[str, Column] = {
        "src": (BYTES, [SRCS[who % 3] + (b"/%d" % (who % 8)) for who, *_ in rows]),
        "last": ("Q", lasts),
        "first": ("Q", [max(0, last - back) for last, (_, _, back, _) in zip(lasts, rows, strict=True)]),
        "heard": ("d", [_NOW - back / 64 for _, _, back, _ in rows]),
        "state": ("B", [state for _, state, _, _ in rows]),
        "absent": (BYTES, [window.to_bytes(4, "little") for window in windows]),
        "missing": (BYTES, [(window & 0x5555_5555).to_bytes(4, "little") for window in windows]),
    }
    kept = {name: column for number, (name, column) in enumerate(columns.items()) if not absent[0] >> number & 1}
    if "absent" not in kept:
        kept.pop("missing", None)
    heir = Host(_RULES, HeartbeatRules(interval=1.0, dead_after=3), _NOW)
    resumed(heir, pack_section(Section("sources", columns=kept)), ordered=not shuffled)
    sources = heir.sources
    known = [(one.src, one.first, one.last, one.epoch, one.missing, one.absent) for one in sources.latest(10)]
    assert sources.missing == sum(one.missing.bit_count() for one in sources.all())
    heir.until(_NOW + 4)
    assert len(sources) <= _RULES.max_sources
    verdicts = [sources.judge(src, min(last + 1, 2**64 - 1), _NOW + 5) for src, _, last, *_ in known]
    heir.until(_NOW + 9)
    assert sources.missing == 0
    return known, verdicts, sources.counted.all()


def record(data: bytes) -> object:
    """The record of a client: read as far as it is whole, and continued from there."""
    raw = CLIENT_HEAD.pack(CLIENT_MAGIC, CLIENT_HEAD.size) + data[1:] if data[:1] == b"\1" else data
    with _file(raw) as fd:
        client = ClientRecord(fd)
        head, found = client.read()
        client.append(frames.subscribe(b"a"))
        again = ClientRecord(fd).read()
        if head:
            assert again == (head, [*found, frames.subscribe(b"a")])
        client.replace({"program": "p"}, found)
        assert ClientRecord(fd).read() == ({"program": "p"}, found)
    return head, found
