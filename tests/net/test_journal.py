"""The way into the journal: the protocol to the letter, whatever a value holds, and never a wait."""

from __future__ import annotations

import fcntl
import os
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.net.journal import Journal, Value, encode, is_journal
from tests.net.journals import JournalSocket, parse

#: seconds; something that does not wait takes much less, and something that waits much more
AT_ONCE = 2.0
NAMES = st.from_regex(r"[A-Z][A-Z0-9_]{0,20}", fullmatch=True)
#: what strangers may choose, with halves of characters and line ends more often than by chance
ANYTHING: st.SearchStrategy[Value] = (
    st.text(st.characters(exclude_categories=[])) | st.text("\n=\0 a\x1b") | st.binary() | st.integers()
)


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[JournalSocket]:
    with JournalSocket(tmp_path / "socket") as one:
        yield one


def expected(value: Value) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "backslashreplace")


def fill(journal: Journal, entry: bytes = b"A=1\n") -> int:
    """Send until no more is taken; how many were."""
    count = 0
    while journal.send(entry):
        count += 1
        assert count < 100_000
    return count


@given(st.lists(st.tuples(NAMES, ANYTHING)))
def test_whatever_a_value_holds_the_reader_gets_it_and_nothing_else(fields: list[tuple[str, Value]]) -> None:
    assert parse(encode(fields)) == [(name, expected(value)) for name, value in fields]


def test_by_the_letter() -> None:
    assert (
        encode([("A", "plain"), ("B", "two\nlines"), ("C", 5)])
        == b"A=plain\nB\n\x09" + b"\0" * 7 + b"two\nlines\nC=5\n"
    )
    assert encode([("A", b"\0"), ("B", "é")]) == b"A\n\x01" + b"\0" * 7 + b"\0\nB=\xc3\xa9\n"


def test_no_value_brings_in_a_field_of_its_own() -> None:
    entry = encode([("MESSAGE", "harmless\nPRIORITY=0\n_UID=0")])
    assert parse(entry) == [("MESSAGE", b"harmless\nPRIORITY=0\n_UID=0")]
    assert not entry.startswith(b"MESSAGE=")


def test_an_entry_arrives_as_one_datagram(listener: JournalSocket) -> None:
    journal = Journal(listener.path)
    assert journal.send(encode([("MESSAGE", "hello"), ("PRIORITY", 6)]))
    assert listener.raw() == b"MESSAGE=hello\nPRIORITY=6\n"
    journal.close()


def test_where_there_is_no_journal_it_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Journal(str(tmp_path / "nobody"))
    dead = JournalSocket(tmp_path / "dead")
    dead.sock.close()
    with pytest.raises(ConnectionRefusedError):
        Journal(dead.path)


def test_one_that_goes_away_takes_nothing_and_one_that_comes_back_does(tmp_path: Path) -> None:
    first = JournalSocket(tmp_path / "socket")
    journal = Journal(first.path)
    first.close()
    assert not journal.send(b"A=1\n")
    with JournalSocket(tmp_path / "socket") as second:
        assert journal.send(b"A=2\n")
        assert second.raw() == b"A=2\n"
    journal.close()


def test_one_that_stands_still_is_not_waited_for(listener: JournalSocket) -> None:
    journal = Journal(listener.path)
    taken = fill(journal)
    began = time.monotonic()
    assert not any(journal.send(b"A=1\n") for _ in range(1000))
    assert time.monotonic() - began < AT_ONCE
    for _ in range(taken):
        assert listener.raw() == b"A=1\n"
    assert journal.send(b"A=2\n")
    assert listener.raw() == b"A=2\n"
    journal.close()


def test_an_entry_that_is_too_large_goes_as_a_file_that_nobody_can_change(listener: JournalSocket) -> None:
    journal = Journal(listener.path)
    entry = encode([("MESSAGE", "x" * 2_000_000)])
    before = len(os.listdir("/proc/self/fd"))
    assert journal.send(entry)
    data, (fd,), _, _ = socket.recv_fds(listener.sock, 100, 4)
    assert data == b""
    wanted = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    assert fcntl.fcntl(fd, fcntl.F_GET_SEALS) == wanted
    assert os.pread(fd, len(entry) + 1, 0) == entry
    with pytest.raises(PermissionError):
        os.pwrite(fd, b"x", 0)
    os.close(fd)
    assert len(os.listdir("/proc/self/fd")) == before
    journal.close()


def test_a_large_entry_is_not_waited_for_either(listener: JournalSocket) -> None:
    journal = Journal(listener.path)
    fill(journal)
    before = len(os.listdir("/proc/self/fd"))
    began = time.monotonic()
    assert not journal.send(b"A=" + b"x" * 2_000_000 + b"\n")
    assert time.monotonic() - began < AT_ONCE
    assert len(os.listdir("/proc/self/fd")) == before
    journal.close()


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    probe = os.dup(0)
    os.close(probe)
    # The lowest free number is the first that may not be had any more; there may be higher ones in use.
    resource.setrlimit(resource.RLIMIT_NOFILE, (probe, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_without_descriptors_small_entries_go_and_large_ones_are_lost(listener: JournalSocket) -> None:
    journal = Journal(listener.path)
    large = b"A=" + b"x" * 2_000_000 + b"\n"
    with no_descriptor_left():
        small, big = journal.send(b"A=1\n"), journal.send(large)
    assert (small, big) == (True, False)
    assert journal.send(large)
    journal.close()


def test_who_ends_waits_until_the_journal_has_read(listener: JournalSocket) -> None:
    journal = Journal(listener.path)
    assert journal.send(b"A=1\n")
    reader = threading.Timer(0.2, listener.raw)
    reader.start()
    began = time.monotonic()
    journal.settle(10)
    assert 0.15 < time.monotonic() - began < AT_ONCE
    assert not reader.is_alive()
    journal.close()


def test_who_ends_does_not_wait_forever(listener: JournalSocket) -> None:
    journal = Journal(listener.path)
    assert journal.send(b"A=1\n")
    began = time.monotonic()
    journal.settle(0.1)
    assert 0.1 <= time.monotonic() - began < AT_ONCE
    journal.close()


def test_our_standard_error_is_the_journal_when_its_numbers_say_so() -> None:
    reader, writer = os.pipe()
    info = os.fstat(writer)
    said = f"{info.st_dev}:{info.st_ino}"
    assert is_journal(writer, {"JOURNAL_STREAM": said})
    for other in (f"{info.st_dev}:{info.st_ino + 1}", f"{info.st_dev + 1}:{info.st_ino}", "", "nonsense", f"{said} "):
        assert not is_journal(writer, {"JOURNAL_STREAM": other})
    assert not is_journal(writer, {})
    os.close(reader)
    os.close(writer)
    assert not is_journal(writer, {"JOURNAL_STREAM": said})
