"""The log: rate limits, fields and ids for the journal, lines for a terminal, the ring of recent lines."""

from __future__ import annotations

import fcntl
import logging
import os
import pty
import re
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
import tty
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd import log
from bccnd.log import handlers
from bccnd.log.events import EVENTS
from bccnd.net.peer import Peer
from tests.log.journals import JournalSocket
from tests.support import PATIENCE

PEER = Peer(pid=77, uid=1000, gid=1000, groups=frozenset(), program=b"prog", started=1)
Setup = Callable[..., None]


@pytest.fixture
def setup(monkeypatch: pytest.MonkeyPatch, log_as_before: None) -> Setup:
    """`log.setup` without a journal."""
    monkeypatch.delenv("JOURNAL_STREAM", raising=False)
    return log.setup


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    yield reader, writer
    os.close(reader)
    os.close(writer)


def stream_of(fd: int) -> str:
    """The variable that the service manager sets for a descriptor that leads to the journal."""
    info = os.fstat(fd)
    return f"{info.st_dev}:{info.st_ino}"


@pytest.fixture
def journal(
    tmp_path: Path, pipe: tuple[int, int], setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> Iterator[JournalSocket]:
    """A journal to which the log goes; the pipe is the stream that leads there."""
    with JournalSocket(tmp_path / "journal/socket") as one:
        monkeypatch.setenv("JOURNAL_STREAM", stream_of(pipe[1]))
        monkeypatch.setattr(handlers, "SOCKET", one.path)
        setup("bccn-sbusd", stderr=pipe[1])
        yield one


def taken(fd: int) -> str:
    """What there is to read now."""
    data = b""
    try:
        while select.select([fd], [], [], 0)[0] and (more := os.read(fd, 65536)):
            data += more
    except BlockingIOError:
        pass
    return data.decode()


def details(record: logging.LogRecord) -> dict[str, Any]:
    """What a record carries beside its text."""
    values = vars(record)
    return {"event": values["event"], "remedy": values["remedy"], **values["fields"]}


def test_a_line_about_a_drop_names_it_as_the_metrics_do(caplog: pytest.LogCaptureFixture) -> None:
    log.event("dropped", "it fell", drop="copies_dropped", remedy="hold it", about=1)
    log.event("dropped", "two (copies_dropped) of them fell", drop="copies_dropped")
    assert caplog.messages == ["it fell (copies_dropped)", "two (copies_dropped) of them fell"]
    assert details(caplog.records[0])["drop"] == "copies_dropped"


def stumble(here: bool) -> None:
    try:
        if here:
            raise ValueError("the cause")
        int("x")
    except ValueError:
        log.bug("a client has met a bug", pid=3)


def test_a_bug_is_logged_with_its_trace_once_a_place(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        stumble(here=True)
        stumble(here=False)
    assert len(caplog.records) == 2
    for record, cause in zip(caplog.records, ("the cause", "invalid literal"), strict=True):
        assert record.levelno == logging.ERROR
        assert record.exc_info is not None
        assert cause in str(record.exc_info[1])
        assert record.getMessage().startswith("a client has met a bug")
        assert (details(record)["event"], details(record)["pid"]) == ("internal_error", 3)


@given(st.text(st.characters(exclude_categories=[])))
def test_only_what_can_be_printed_gets_to_a_terminal(text: str) -> None:
    shown = handlers.printable(text)
    assert all(one.isprintable() for one in shown.replace("\n", "").replace("\t", ""))
    assert shown.count("\n") == text.count("\n")
    assert handlers.printable(shown) == shown
    if text.isprintable():
        assert shown == text


def test_plain_lines_and_traces_are_entries_without_an_id(journal: JournalSocket) -> None:
    log.logger.info("one %s", "line")
    log.logger.error("two\nlines\x1b")
    log.logger.debug("chatter")
    assert journal.waiting() == [
        {"MESSAGE": b"one line", "PRIORITY": b"6", "SYSLOG_IDENTIFIER": b"bccn-sbusd"},
        {"MESSAGE": b"two\nlines\\x1b", "PRIORITY": b"3", "SYSLOG_IDENTIFIER": b"bccn-sbusd"},
    ]
    try:
        raise ValueError("the cause\x1b")
    except ValueError:
        log.logger.exception("something failed")
        log.event("internal_error", "a bug", trace=True)
    for entry, text in zip(journal.waiting(), (b"something failed", b"a bug"), strict=True):
        lines = entry["MESSAGE"].split(b"\n")
        assert lines[:2] == [text, b"Traceback (most recent call last):"]
        assert lines[-1] == b"ValueError: the cause\\x1b"


def test_lines_that_the_journal_does_not_take_are_counted(journal: JournalSocket) -> None:
    sent = 0
    for _ in range(2000):
        log.event("client_slow", f"line {sent}")
        sent += 1
    before = journal.waiting()
    assert [entry["MESSAGE"] for entry in before] == [b"line %d" % number for number in range(len(before))]
    assert len(before) < sent
    log.event("ready", "again")
    lost, again = journal.waiting()
    assert lost["BCCND_COUNT"] == b"%d" % (sent - len(before))
    assert lost["MESSAGE"].startswith(lost["BCCND_COUNT"])
    assert lost["MESSAGE_ID"] == EVENTS["lines_lost"].id.encode()
    assert (lost["BCCND_EVENT"], lost["PRIORITY"]) == (b"lines_lost", b"4")
    assert lost["BCCND_REMEDY"]
    assert again["MESSAGE"] == b"again"
    log.event("ready", "and again")
    assert [entry["MESSAGE"] for entry in journal.waiting()] == [b"and again"]


def test_a_journal_that_restarts_gets_the_number_of_lost_lines(journal: JournalSocket, tmp_path: Path) -> None:
    log.event("ready", "before")
    assert journal.entry()["MESSAGE"] == b"before"
    journal.close()
    log.event("ready", "lost")
    with JournalSocket(Path(journal.path)) as next_journal:
        log.event("ready", "after")
        lost, after = next_journal.waiting()
    assert (lost["BCCND_COUNT"], after["MESSAGE"]) == (b"1", b"after")


def test_a_line_that_exceeds_a_datagram_is_cut_and_counted(journal: JournalSocket) -> None:
    before = log.lines_dropped()["lines_lost"]
    log.event("not_permitted", "\u20ac" * 500_000, remedy="ask", channel=b"a\n" * 500_000, pid=77)
    (entry,) = journal.waiting()
    text = entry["MESSAGE"].decode()
    assert text.startswith("\u20ac" * 1000)
    assert text.endswith("...")
    assert entry["BCCND_CHANNEL"].startswith(b"a\n" * 1000)
    assert (entry["BCCND_REMEDY"], entry["BCCND_PID"]) == (b"ask", b"77")
    assert log.lines_dropped()["lines_lost"] == before + 1
    log.event("ready", "next")
    assert [entry["MESSAGE"] for entry in journal.waiting()] == [b"next"]


VALUES = st.one_of(st.text(st.characters(exclude_categories=())), st.binary(), st.integers())
LIKE_A_FIELD = st.sampled_from(["\nPRIORITY=0\n", "\nMESSAGE\n\1\0\0\0\0\0\0\0x\n", "=", "\n"])


@given(st.lists(st.one_of(VALUES, LIKE_A_FIELD, LIKE_A_FIELD.map(str.encode)), max_size=4), VALUES.map(str))
def test_no_value_adds_or_ends_a_field(values: list[str | bytes | int], text: str) -> None:
    with tempfile.TemporaryDirectory() as folder, JournalSocket(Path(folder, "socket")) as journal:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(handlers, "SOCKET", journal.path)
            handler = handlers.JournalHandler("bccnd")
            record = logging.LogRecord("bccnd", logging.INFO, __file__, 0, "%s", (text,), None)
            vars(record).update(event="ready", remedy="", fields={f"f{n}": one for n, one in enumerate(values)})
            handler.handle(record)
            handler.close()
        entry = journal.entry()
    sent = {f"BCCND_F{n}": encoded(one) for n, one in enumerate(values)}
    assert entry == {
        "MESSAGE": handlers.printable(text).encode(),
        "PRIORITY": b"6",
        "SYSLOG_IDENTIFIER": b"bccnd",
        "MESSAGE_ID": EVENTS["ready"].id.encode(),
        "BCCND_EVENT": b"ready",
        **sent,
    }


def encoded(value: str | bytes | int) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "backslashreplace")


def test_an_ending_process_waits_until_the_journal_has_read(journal: JournalSocket) -> None:
    log.event("ready", "last words")
    began = time.monotonic()
    log.wait_until_read(0.1)
    assert time.monotonic() - began >= 0.1
    reader = threading.Timer(0.2, journal.raw)
    began = time.monotonic()
    reader.start()
    log.wait_until_read(3600)
    assert time.monotonic() - began >= 0.2
    reader.join()


def test_without_a_journal_lines_have_their_level(
    tmp_path: Path, setup: Setup, pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOURNAL_STREAM", stream_of(pipe[1]))
    monkeypatch.setattr(handlers, "SOCKET", str(tmp_path / "socket"))
    setup(stderr=pipe[1])
    log.logger.info("ready")
    log.event("start_refused", "cannot start: it\x1b[0m\n  remedy: that", remedy="that", reason="x")
    first, *others = taken(pipe[0]).splitlines()
    assert first.startswith("<4>cannot reach the journal: ")
    assert others == ["<6>ready", "<3>cannot start: it\\x1b[0m remedy: that"]


def terminal() -> tuple[int, int]:
    master, slave = pty.openpty()
    tty.setraw(slave)
    return master, slave


def stream() -> tuple[int, int]:
    ours, theirs = socket.socketpair()
    return ours.detach(), theirs.detach()


def people(text: str) -> str:
    return rf"\d\d:\d\d:\d\d bccnd {text}"


def test_people_get_the_time_and_the_level(setup: Setup, pipe: tuple[int, int]) -> None:
    setup(stderr=pipe[1])
    log.logger.warning("slow\nvery slow")
    log.event("client_slow", "prog is slow", remedy="hurry", pid=7)
    log.logger.debug("chatter")
    first, second, third = taken(pipe[0]).splitlines()
    assert re.fullmatch(people("warning: slow"), first)
    assert second == "  very slow"
    assert re.fullmatch(people("warning: prog is slow. Remedy: hurry"), third)


@pytest.mark.parametrize(
    ("make", "count"), [(os.pipe, 2000), (terminal, 200), (stream, 4000)], ids=["pipe", "terminal", "socket"]
)
def test_a_full_standard_error_blocks_none_and_losses_count(
    make: Callable[[], tuple[int, int]], count: int, setup: Setup
) -> None:
    reader, writer = make()
    setup(stderr=writer)
    for number in range(count):
        log.logger.info("line %d %s", number, "x" * 100)
    assert not fcntl.fcntl(writer, fcntl.F_GETFL) & os.O_NONBLOCK, "it belongs to others too"
    text = ""
    while select.select([reader], [], [], 0.2)[0]:
        text += os.read(reader, 65536).decode()
    log.logger.info("line %d at last", count)
    while not re.search(r"at last *\n", text):
        assert select.select([reader], [], [], PATIENCE)[0], text[-500:]
        text += os.read(reader, 65536).decode()
    expected = missing = 0
    text = re.sub(r"\x1b\[[\d;]*m", "", text)
    for number, lost in re.findall(r"(?i)info:? +line (\d+)|(\d+) log lines are missing here", text):
        missing += int(lost or 0)
        expected += int(lost or 1)
        assert lost or int(number) == expected - 1
    assert expected == count + 1
    assert missing > 10  # and a line that had gone out in part was finished
    os.close(reader)
    os.close(writer)


def test_a_closed_standard_error_costs_nothing(setup: Setup, capfd: pytest.CaptureFixture[str]) -> None:
    reader, writer = os.pipe()
    setup(stderr=writer)
    os.close(reader)
    log.logger.info("unread")
    os.close(writer)
    log.logger.info("nowhere")
    assert capfd.readouterr() == ("", "")


def test_the_last_lines_stay_in_memory_within_limits() -> None:
    recent = log.keep_recent()
    try:
        log.event("kernel_drops", "segment a: dropped", remedy="raise it", segment="a", count=1)
        log.logger.warning("a\x1b[2Jb")
        plain, logged = recent
        assert logged[1:] == (logging.WARNING, "kernel_drops", "segment a: dropped", "raise it")
        assert plain[1:] == (logging.WARNING, "", "a\\x1b[2Jb", "")
        for number in range(handlers.RECENT + 5):
            log.logger.warning("%d %s", number, "x" * 10_000)
        lines = list(recent)
        assert [line.text.split()[0] for line in lines] == [str(n) for n in range(handlers.RECENT + 4, 4, -1)]
        assert max(len(line.text) for line in lines) == handlers.MAX_RECENT + 3
    finally:
        recent.close()
    log.logger.warning("after the end")
    assert len(list(recent)) == handlers.RECENT


def test_each_part_logs_by_its_own_name(caplog: pytest.LogCaptureFixture) -> None:
    log.event("client_slow", "slow")
    log.event("kernel_drops", "dropped")
    assert [record.name for record in caplog.records] == ["bccnd.bus", "bccnd.segment"]
    code = "import bccnd, logging; print(logging.getLogger('bccnd').handlers)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
