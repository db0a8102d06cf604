"""A log: every record before damage is read as it was written, and none after it is made up."""

from __future__ import annotations

import io
import resource
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.recorder.logfile import LogReader, LogWriter, frame

Record = tuple[bytes, bytes]
RECORDS = st.lists(st.tuples(st.sampled_from([b"P", b"R"]), st.binary(max_size=60)), max_size=8)


def written(records: list[Record]) -> bytes:
    return b"".join(b"".join(frame(kind, content)) for kind, content in records)


def read(data: bytes) -> tuple[list[Record], str, int]:
    reader = LogReader(io.BytesIO(data))
    return list(reader), reader.end, reader.good


def whole_until(records: list[Record], place: int) -> tuple[int, int]:
    """How many records end at or before a place, and where the last of them ends."""
    sizes = [len(written(records[:count])) for count in range(len(records) + 1)]
    return max((count, size) for count, size in enumerate(sizes) if size <= place)


@given(RECORDS, st.data())
def test_a_cut_file_ends_with_its_last_whole_record(records: list[Record], data: st.DataObject) -> None:
    whole = written(records)
    assert read(whole) == (records, "clean", len(whole))
    cut = data.draw(st.integers(0, len(whole)))
    count, size = whole_until(records, cut)
    assert read(whole[:cut]) == (records[:count], "clean" if size == cut else "torn", size)


@given(RECORDS.filter(bool), st.data())
def test_a_flipped_bit_is_found_and_what_precedes_it_is_saved(records: list[Record], data: st.DataObject) -> None:
    whole = bytearray(written(records))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= 1 << data.draw(st.integers(0, 7))
    count, size = whole_until(records, place)
    assert read(bytes(whole)) == (records[:count], "damaged", size)


@given(RECORDS, st.integers(0, 12), st.integers(1, 5000))
def test_zeros_are_what_a_power_cut_leaves_of_a_record(records: list[Record], written_of_it: int, zeros: int) -> None:
    last = written([(b"P", b"x" * 50)])
    data = written(records)
    read_records, end, good = read(data + last[:written_of_it] + bytes(zeros))
    assert (read_records, good) == (records, len(data))
    assert end in (("torn",) if not written_of_it else ("torn", "damaged"))
    assert read(data + bytes(zeros) + b"\1")[1] in ("damaged", "torn" if zeros < 12 else "damaged")


def test_the_writer_writes_what_the_reader_reads(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = LogWriter(str(path))
    log.append(b"P", b"one")
    log.append(b"R", b"")
    log.has_room(4096)
    log.append(b"P", b"three")
    log.close()
    data = path.read_bytes()
    assert read(data)[:2] == ([(b"P", b"one"), (b"R", b""), (b"P", b"three")], "clean")
    assert (log.size, path.stat().st_mode & 0o777) == (len(data), 0o600)
    with pytest.raises(FileExistsError):
        LogWriter(str(path))


def test_a_record_that_does_not_fit_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = LogWriter(str(path))
    log.append(b"P", b"x" * 500)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        for size in (600, 2000):
            with pytest.raises(OSError, match=r"too large|No space left"):
                log.append(b"P", b"y" * size)
        log.append(b"P", b"z" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    log.close()
    assert read(path.read_bytes())[:2] == ([(b"P", b"x" * 500), (b"P", b"z" * 100)], "clean")
