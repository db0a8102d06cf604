"""The log of a client: changes are logged before they count; log and in-flight state together show what was sent."""

from __future__ import annotations

import mmap
import os
import random
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Final

import pytest

from bccnd.core.formats import client_log_format
from bccnd.core.formats.client_log_format import Record
from bccnd.handover import memfd
from bccnd.handover.client_log import StoredClientLog
from bccnd.handover.memfd import File
from bccnd.native.memory import inflight_layout as layout
from bccnd.native.memory.inflight import InflightState, Sender
from tests.limits import no_file_larger_than
from tests.native.inflight_memory import new_memory
from tests.support import examples

FD: Final = 50
HEAD: Final = client_log_format.pack_head()


class Case:
    """A stored client: its log, and its slot in the in-flight state."""

    def __init__(self, memory: mmap.mmap) -> None:
        self.memory = memory
        self.inflight = InflightState(memory)
        self.inflight.assign(FD, 5)
        self.failures: list[OSError] = []
        self.file = File(memfd.create("state"))
        self.file.append(HEAD)
        self.client_log = StoredClientLog(9, 5, FD, self.file, self.inflight, self.failures.append)

    def records(self) -> list[Record]:
        with closing(File(os.dup(self.file.fd))) as file:
            found = client_log_format.read_image(file.read())
        assert found.unknown == []
        return found.records


@pytest.fixture
def case() -> Iterator[Case]:
    with new_memory() as (memory, _):
        one = Case(memory)
        yield one
        one.file.close()


def test_records_have_the_serial_of_their_input(case: Case) -> None:
    client_log = case.client_log
    client_log.counts(published=1, lost=2)
    case.inflight.begin(layout.PACKET, 9, FD)
    client_log.subscribed(b"a/>")
    client_log.subscribed(b"b", 3)
    client_log.unsubscribed(b"a/>", 1)
    client_log.requested(b"CMSG echo/off\0")
    client_log.head_dropped()
    client_log.sent(7)
    client_log.blocked(b"MSG k\0v")
    client_log.retried()
    client_log.resumed()
    assert case.records() == [
        Record(client_log_format.COUNTS, 0, 0, b'{"published": 1, "lost": 2}'),
        Record(client_log_format.SUBSCRIBED, 1, 1, b"a/>"),
        Record(client_log_format.SUBSCRIBED, 1, 3, b"b"),
        Record(client_log_format.UNSUBSCRIBED, 1, 1, b"a/>"),
        Record(client_log_format.REQUESTED, 1, 0, b"CMSG echo/off\0"),
        Record(client_log_format.HEAD_DROPPED, 1, 1, b""),
        Record(client_log_format.SENT, 1, 7, b""),
        Record(client_log_format.BLOCKED, 1, 0, b"MSG k\0v"),
        Record(client_log_format.RESUMED, 2, 0, b""),
    ]
    assert layout.read_unfinished(case.memory) == layout.InflightInput(layout.RETRY, 9, 2, 0.0, 0)
    assert case.inflight.counted(FD) == 0
    assert case.failures == []


def test_queued_dropped_and_unsent_count_as_delivered(case: Case) -> None:
    client_log, inflight = case.client_log, case.inflight
    inflight.begin(layout.RETRY, 1)
    inflight.count(FD, 2)
    client_log.queued(b"MSG a\0")
    client_log.dropped()
    client_log.control_dropped()
    client_log.queued(b"MSG b\0")
    assert inflight.counted(FD) == 6
    assert [(one.kind, one.delivered, one.serial) for one in case.records()] == [
        (client_log_format.QUEUED, 3, 1),
        (client_log_format.DROPPED, 4, 1),
        (client_log_format.QUEUED, 6, 1),
    ]
    inflight.begin(layout.RETRY, 1)
    client_log.queued(b"MSG c\0")
    assert (case.records()[-1].delivered, case.records()[-1].serial, inflight.counted(FD)) == (1, 2, 1)


def test_record_is_written_before_the_count(case: Case) -> None:
    """Between the two the log is ahead by one; the greater number counts."""
    seen: list[tuple[int, int]] = []
    append = case.file.append

    def watched(data: bytes) -> None:
        seen.append((case.inflight.counted(FD), len(case.records())))
        append(data)

    case.file.append = watched  # type: ignore[method-assign]
    case.inflight.begin(layout.RETRY, 1)
    case.client_log.queued(b"MSG a\0")
    case.client_log.dropped()
    case.client_log.queued(b"MSG b\0")
    assert seen == [(0, 0), (1, 1), (2, 2)]


@pytest.mark.parametrize(
    ("what", "arguments"),
    [
        *(("queued", (b"MSG a\0",)), ("dropped", ()), ("head_dropped", ()), ("sent", (1,)), ("subscribed", (b"a",))),
        *(("unsubscribed", (b"a", 1)), ("requested", (b"CMSG echo/off\0",)), ("blocked", (b"MSG a\0",))),
        *(("resumed", ()), ("counts", ())),
    ],
)
def test_client_that_cannot_be_logged_is_given_up(case: Case, what: str, arguments: tuple[object, ...]) -> None:
    with no_file_larger_than(case.file.end + 10):
        getattr(case.client_log, what)(*arguments)
    assert len(case.failures) == 1
    assert case.failures[0].strerror
    assert case.records() == []


def send(case: Case, fd: int) -> None:
    """Send a queue of 300, one and two at a time, then wait to be killed."""
    sender = Sender(case.inflight)
    for number in range(0, 300, 3):
        sender.waited(fd, b"%d" % number, 1, case.client_log.length)
        case.client_log.sent(1)
        sender.waited(fd, b"%d" % (number + 1), 2, case.client_log.length)
        case.client_log.sent(2)
        if number % 60 == 0:
            case.file.replace(HEAD + client_log_format.pack_record(client_log_format.SENT, number=number + 3))
    signal.pause()


def test_killed_flush_has_sent_what_log_and_state_record() -> None:
    chance = random.Random(11)
    hits = 0
    with new_memory() as (memory, _):
        while hits < examples(15):
            case = Case(memory)
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            theirs.setblocking(False)
            seen = case.client_log.length
            with ours, theirs:
                case.inflight.assign(ours.fileno(), 5)
                layout.write_number(memory, layout.AT_SENDING, 0)
                # Some of these records cross a page and may be truncated.
                for number in range(300):
                    case.client_log.queued(b"MSG a\0%d" % number + b"." * (number % 90))
                pid = os.fork()
                if not pid:
                    with suppress(BaseException):
                        send(case, ours.fileno())
                    os._exit(1)
                while case.file.end == os.fstat(case.file.fd).st_size:
                    pass
                end = time.monotonic() + chance.random() * 0.004
                while time.monotonic() < end:
                    pass
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                sent = 0
                with suppress(BlockingIOError):
                    while packet := theirs.recv(100):
                        assert int(packet) == sent
                        sent += 1 if sent % 3 == 0 else 2
            file = File(os.dup(case.file.fd))
            found = client_log_format.read_image(file.read())
            file.cut(found.size)
            taken = sum(one.number for one in found.records if one.kind == client_log_format.SENT)
            sending = layout.read_sending(memory)
            if sending is not None and sending.taken and sending.length == file.end:
                taken += sending.taken
                hits += 1
            assert taken == sent
            assert seen < file.end
            file.close()
            case.file.close()
