"""Files that were left or given to us: configurations, captures, logs of the recorder, Parquet files, rows as bytes."""

from __future__ import annotations

import atexit
import io
import random
import shutil
import struct
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

import pyarrow.fs as pafs

from bccnd import config
from bccnd.core.formats.pcap import CaptureCounts, Datagram, Reader, unwrap
from bccnd.core.formats.tap_record import observe
from bccnd.errors import ConfigError, JournalError
from bccnd.journal import file_names
from bccnd.journal.damage import DamagedFileError
from bccnd.journal.session_files import read_sessions
from bccnd.journal.sessions import RecorderSession
from bccnd.recorder import logfile
from bccnd.recorder import rows as packed
from bccnd.recorder.convert import convert
from bccnd.recorder.sessions import Head

_PORT: Final = 5400


@cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="bccnd-fuzz-"))
    atexit.register(shutil.rmtree, folder, True)
    return folder


def configuration(data: bytes) -> object:
    """A configuration: settings, or faults that each have a reason and a remedy."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    try:
        return config.read(text, "it.yaml", resolve=False).settings.model_dump_json(exclude={"host"})
    except ConfigError as error:
        refused = error
    assert refused.faults, "refused without a reason"
    assert all(fault.reason and fault.remedy for fault in refused.faults), refused.faults
    return str(refused)


def _captured(data: bytes, cuts: list[int]) -> tuple[list[Datagram], CaptureCounts, str]:
    tally = CaptureCounts()
    reader = Reader("it", tally)
    found: list[Datagram] = []
    try:
        for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
            for packet in reader.feed(data[start:end]):
                one = unwrap(packet, _PORT, tally)
                if one is not None:
                    found.append(one)
        reader.finish()
    except JournalError as error:
        return found, tally, error.detail
    return found, tally, ""


def capture(data: bytes) -> object:
    """A capture: whatever the pieces that it is read in, the same is found; each packet is counted once."""
    whole = _captured(data, [])
    pieces = _captured(data, [len(data) // 3, len(data) // 2])
    assert pieces[0] == whole[0]
    assert pieces[2] == whole[2]
    tally = whole[1]
    counts = {name: value for name, value in vars(tally).items() if isinstance(value, int)}
    assert {name: value for name, value in vars(pieces[1]).items() if isinstance(value, int)} == counts
    others = sum(counts.get(name, 0) for name in ("other", "fragments", "malformed", "truncated", "unknown_link"))
    assert tally.packets == tally.datagrams + others, counts
    for one in whole[0]:
        observe("accepted", "one", 1, one.stamp, one.peer, one.payload)
    return whole[0], sorted(counts.items()), whole[2]


def repair(data: bytes, seed: int) -> bytes:
    """A capture whose head is put right, with the input as its packets."""
    chance = random.Random(seed)
    if chance.random() < 0.4:
        return data
    order = chance.choice("<>")
    head = struct.pack(f"{order}IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, chance.choice((0, 1, 101, 113, 228, 276)))
    size = chance.choice((28, 32, 42, 60))
    packets = [data[at : at + size] for at in range(0, len(data), size)]
    return head + b"".join(struct.pack(f"{order}IIII", 1, 2, len(one), len(one)) + one for one in packets)


# -- logs of the recorder

_HEAD: Final = Head("relay01", "j1", 1, "0", [RecorderSession(1, 2, 0, 0)]).pack()


def log(data: bytes) -> object:
    """A script of records, the last one perhaps torn or damaged, into a journal: all that comes before the damage is
    there, and nothing else; a log that has no beginning is refused in words."""
    folder = _folder()
    path, journal = folder / "log", folder / "journal"
    flags, script = (data[0], data[1:]) if data else (0, b"")
    raw = b"".join(logfile.frame(logfile.HEAD, _HEAD)) if not flags & 1 else b""
    while len(script) >= 2:
        kind, size = b"PRAHx"[script[0] % 5 :][:1], script[1]
        raw += b"".join(logfile.frame(kind, script[2 : 2 + size]))
        script = script[2 + size :]
    if flags & 2:
        raw = raw[: len(raw) - (flags >> 4)]
    if flags & 4 and raw:
        at = len(raw) - 1 - (flags >> 4) % len(raw)
        raw = raw[:at] + bytes([raw[at] ^ 0x20]) + raw[at + 1 :]
    if flags & 8:
        raw = data[1:]
    path.write_bytes(raw)
    with io.BytesIO(raw) as file:
        reader = logfile.LogReader(file)
        records = list(reader)
        assert reader.good <= len(raw)
    with io.BytesIO(raw[: reader.good]) as file:
        again = logfile.LogReader(file)
        assert list(again) == records
        assert again.end == "clean"
    if not flags & 14:
        assert reader.good == len(raw), "a whole log is read to its end"
    shutil.rmtree(journal, ignore_errors=True)
    try:
        made = convert(str(path), pafs.LocalFileSystem(), str(journal))
    except JournalError as error:
        return len(records), reader.end, error.reason
    return len(records), reader.end, (made.rows, made.files, made.end, made.saved)


def sessions(data: bytes) -> object:
    """A file of sessions: read, or taken for none."""
    path = _folder() / file_names.sessions_path("relay01", "j1")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    try:
        return [vars(one) for one in read_sessions(pafs.LocalFileSystem(), str(_folder()), "relay01", "j1")]
    except DamagedFileError:
        return "damaged"


def rows(data: bytes) -> object:
    """Rows as bytes: read, or none; what is read can be written again. And a packet of the tap as rows."""
    try:
        found: object = packed.unpack(data)
    except ValueError as bad:
        found = str(bad)
    else:
        assert packed.unpack(packed.pack(packed.unpack(data))) == found
    seen = packed.observations(data)
    if seen:
        assert packed.unpack(packed.pack(seen)) == seen
    return found, seen, packed.gap_in(data)
