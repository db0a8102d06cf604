"""Clients that ask for batches, with a real daemon: they receive what the others do, in the same order, in fewer
packets."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

import bccnd
from bccnd.core import frames
from tests.client.sessions import Join, both
from tests.e2e.harness import PATIENCE, Daemon, Wire, datagram
from tests.e2e.subscribers import Examples, examples

__all__ = ["examples"]

COUNT = 1000
NUMBERS = [b"%d" % number for number in range(COUNT)]
_SENDERS = count(1)


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages were in each of the batches that clients of this process have read."""
    seen: list[int] = []
    read_batch = frames.read_batch

    def counted(packet: bytes) -> list[bytes]:
        assert len(packet) <= frames.MAX_BATCH
        together = read_batch(packet)
        seen.append(len(together))
        return together

    monkeypatch.setattr(frames, "read_batch", counted)
    return seen


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("daemon")) as daemon:
        yield daemon


def all_at_once(daemon: Daemon, chan: str) -> None:
    """Have the daemon find so many datagrams when it looks, from a sender that is new to it."""
    sender = f"relay02/sensor/{next(_SENDERS)}"
    with Wire(daemon.port) as wire:
        daemon.signal(signal.SIGSTOP)
        wire.send(*(datagram(sender, number + 1, chan, b"%d" % number) for number in range(COUNT)))
        daemon.signal(signal.SIGCONT)


@both
def test_with_batches_a_client_receives_what_others_do_in_fewer_packets(
    daemon: Daemon, sizes: list[int], join: Join
) -> None:
    with daemon.connect("a/") as plain, join(str(daemon.bus), batch=True) as batched:
        batched.subscribe("a/")
        assert batched.sync() == []
        all_at_once(daemon, "a/b")
        got = [plain.receive(PATIENCE) for _ in range(COUNT)]
        assert not sizes
        assert [batched.receive(PATIENCE) for _ in range(COUNT)] == got
        assert all(isinstance(one, bccnd.Message) for one in got)
        assert len(sizes) < COUNT / 4
        assert batched.receive(0) is None


@both
def test_what_a_slow_program_has_lost_is_told_in_its_place(tmp_path: Path, sizes: list[int], join: Join) -> None:
    count = 20_000
    with (
        Daemon(tmp_path / "a", {"bus": {"queue": {"messages": 100}}}) as daemon,
        join(str(daemon.bus), batch=True) as bus,
        daemon.connect() as publisher,
    ):
        bus.subscribe("a")
        bus.sync()
        for number in range(count):
            publisher.publish("a", b"%d" % number)
        publisher.sync(PATIENCE)
        expected = 0
        gaps = 0
        while expected < count:
            event = bus.receive(PATIENCE)
            assert event is not None
            if isinstance(event, bccnd.Gap):
                gaps += 1
                expected += event.lost
            else:
                assert isinstance(event, bccnd.Message)
                assert event.payload == b"%d" % expected
                expected += 1
        assert gaps
        assert sizes
        assert bus.receive(0) is None


# -- in C


def test_the_c_example_prints_what_comes_in_batches(daemon: Daemon, examples: Examples) -> None:
    with (
        examples.subscribe("c", daemon, "a/") as plain,
        examples.subscribe("c", daemon, "a/", "-b") as batched,
        daemon.connect() as client,
    ):
        all_at_once(daemon, "a/b")
        for one in (plain, batched):
            one.wait_for(b"MSG a/b %b\n" % NUMBERS[-1])  # what comes from a segment may come behind what we publish
        client.publish("a/c", b"x" * 100_000)
        client.publish("a/end", b"\0binary\n\0")
        wanted = [*(b"b " + number for number in NUMBERS), b"c " + b"x" * 100_000, b"end \0binary\n\0"]
        for one in (plain, batched):
            one.wait_for(b"MSG a/end \0binary\n\0\n")
            assert one.complained() == b""
            assert one.printed() == b"".join(b"MSG a/%b\n" % line for line in wanted)
