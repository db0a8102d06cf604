"""The way into the journal: the protocol to the letter, whatever a value holds, and never a wait."""

from __future__ import annotations

import fcntl
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.net.journal import Journal, Value, encode, is_journal
from tests.net.journals import JournalSocket, parse
from tests.net.limits import descriptors_left

NAMES = st.from_regex(r"[A-Z][A-Z0-9_]{0,20}", fullmatch=True)
#: what strangers may choose, with halves of characters and line ends more often than by chance
ANYTHING: st.SearchStrategy[Value] = (
    st.text(st.characters(exclude_categories=[])) | st.text("\n=\0 a\x1b") | st.binary() | st.integers()
)


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[JournalSocket]:
    with JournalSocket(tmp_path / "socket") as one:
        yield one


@pytest.fixture
def journal(listener: JournalSocket) -> Iterator[Journal]:
    one = Journal(listener.path)
    yield one
    one.close()


def expected(value: Value) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "backslashreplace")


@given(st.lists(st.tuples(NAMES, ANYTHING)))
def test_whatever_a_value_holds_the_reader_gets_it_and_nothing_else(fields: list[tuple[str, Value]]) -> None:
    assert parse(encode(fields)) == [(name, expected(value)) for name, value in fields]


def test_by_the_letter() -> None:
    assert (
        encode([("A", "plain"), ("B", "two\nlines"), ("C", 5)])
        == b"A=plain\nB\n\x09" + b"\0" * 7 + b"two\nlines\nC=5\n"
    )
    assert encode([("A", b"\0"), ("B", "é")]) == b"A\n\x01" + b"\0" * 7 + b"\0\nB=\xc3\xa9\n"


def test_who_is_not_there_is_told_at_once_and_one_that_comes_back_takes_again(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Journal(str(tmp_path / "nobody"))
    first = JournalSocket(tmp_path / "socket")
    journal = Journal(first.path)
    first.sock.close()
    with pytest.raises(ConnectionRefusedError):
        Journal(first.path)
    first.close()
    assert not journal.send(b"A=1\n")
    with JournalSocket(tmp_path / "socket") as second:
        assert journal.send(b"A=2\n")
        assert second.raw() == b"A=2\n"
    journal.close()


def test_one_that_stands_still_is_not_waited_for(listener: JournalSocket, journal: Journal) -> None:
    taken = 0
    while journal.send(b"A=1\n"):
        taken += 1
    before = len(os.listdir("/proc/self/fd"))
    assert not any(journal.send(b"A=1\n") for _ in range(1000))
    assert not journal.send(b"A=" + b"x" * 2_000_000 + b"\n")
    assert len(os.listdir("/proc/self/fd")) == before
    for _ in range(taken):
        assert listener.raw() == b"A=1\n"
    assert journal.send(b"A=2\n")
    assert listener.raw() == b"A=2\n"


def test_a_large_entry_goes_as_a_file_that_nobody_can_change(listener: JournalSocket, journal: Journal) -> None:
    entry = encode([("MESSAGE", "x" * 2_000_000)])
    before = len(os.listdir("/proc/self/fd"))
    assert journal.send(entry)
    data, (fd,), _, _ = socket.recv_fds(listener.sock, 100, 4)
    assert data == b""
    wanted = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    assert fcntl.fcntl(fd, fcntl.F_GET_SEALS) == wanted
    assert os.pread(fd, len(entry) + 1, 0) == entry
    os.close(fd)
    assert len(os.listdir("/proc/self/fd")) == before


def test_without_descriptors_small_entries_go_and_large_ones_are_lost(journal: Journal) -> None:
    large = b"A=" + b"x" * 2_000_000 + b"\n"
    with descriptors_left(0):
        small, big = journal.send(b"A=1\n"), journal.send(large)
    assert (small, big) == (True, False)
    assert journal.send(large)


def test_who_ends_waits_until_the_journal_has_read(listener: JournalSocket, journal: Journal) -> None:
    assert journal.send(b"A=1\n")
    began = time.monotonic()
    journal.settle(0.1)
    assert time.monotonic() - began >= 0.1
    reader = threading.Timer(0.2, listener.raw)
    began = time.monotonic()
    reader.start()
    journal.settle(3600)
    assert time.monotonic() - began >= 0.2
    reader.join()


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
