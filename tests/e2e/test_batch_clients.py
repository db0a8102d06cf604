"""Clients that ask for batches, with a real daemon: they receive what the others do, in the same order, in fewer
packets."""

from __future__ import annotations

import asyncio
import re
import select
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import bccnd
import bccnd.aio
from bccnd.core import frames
from tests.client.sessions import Driven, Join
from tests.e2e.harness import PATIENCE, Daemon, Wire, datagram, payloads, wait
from tests.e2e.test_examples import SANITIZED, Examples, Subscriber, check, examples

__all__ = ["check", "examples"]

COUNT = 1000
NUMBERS = [b"%d" % number for number in range(COUNT)]
both = pytest.mark.parametrize("join", [bccnd.connect, Driven], ids=["blocking", "asyncio"])


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


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with Daemon(tmp_path / "a") as daemon:
        yield daemon


def all_at_once(daemon: Daemon, chan: str, sender: str = "sensor") -> None:
    """Have the daemon find so many datagrams when it looks."""
    with Wire(daemon.port) as wire:
        daemon.signal(signal.SIGSTOP)
        wire.send(*(datagram(f"relay02/{sender}/1", number + 1, chan, b"%d" % number) for number in range(COUNT)))
        daemon.signal(signal.SIGCONT)


@both
def test_who_asks_for_batches_receives_what_others_do_in_fewer_packets(
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
def test_what_is_told_in_between_stays_in_its_place(daemon: Daemon, sizes: list[int], join: Join) -> None:
    large = b"x" * 100_000
    with join(str(daemon.bus), batch=True) as bus:
        bus.subscribe("a")
        bus.sync()
        for number in range(300):
            bus.publish("a", b"%d" % number)
            if number == 100:
                bus.publish("two words")
            if number == 150:
                bus.publish("a", large)
        wanted = [b"%d" % number for number in range(300)]
        wanted.insert(151, large)
        events = [bus.receive(PATIENCE) for _ in range(303)]
        assert [event.payload for event in events if isinstance(event, bccnd.Message)] == wanted
        # The large one has reached this host only; it comes before what is said of it.
        refused = {number: event for number, event in enumerate(events) if not isinstance(event, bccnd.Message)}
        assert refused == {101: bccnd.Refusal("bad_channel", "two words"), 153: bccnd.Refusal("too_long", "a")}
        assert bus.sync() == []


@both
def test_batches_can_be_switched_off_and_on_while_messages_come(daemon: Daemon, sizes: list[int], join: Join) -> None:
    with join(str(daemon.bus)) as bus:
        bus.subscribe("a")
        for number in range(COUNT):
            if number % 50 == 0:
                bus.batch(number % 100 == 0)
            bus.publish("a", b"%d" % number)
        assert bus.sync() == []
        found = iter(bus)
        assert [next(found).payload for _ in range(COUNT)] == NUMBERS
        assert 0 < sum(sizes) < COUNT


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


@both
def test_the_next_daemon_sends_batches_again(daemon: Daemon, sizes: list[int], join: Join) -> None:
    with join(str(daemon.bus), batch=True) as bus:
        bus.subscribe("a/")
        bus.sync()
        assert daemon.stop() == 0
        daemon.log.unlink()  # what it said before is no sign that it serves again
        daemon.start()
        assert isinstance(bus.receive(PATIENCE), bccnd.Reconnected)
        assert bus.sync() == []
        all_at_once(daemon, "a/b")
        assert payloads(bus, COUNT) == NUMBERS
        assert 0 < len(sizes) < COUNT / 4


def test_the_tap_comes_in_batches(daemon: Daemon, sizes: list[int]) -> None:
    with bccnd.connect(str(daemon.bus), batch=True) as bus:
        bus.subscribe("!/tap/", "a/")
        bus.sync()
        all_at_once(daemon, "a/b")
        told: dict[str, list[bytes]] = {}
        for _ in range(2 * COUNT):
            event = bus.receive(PATIENCE)
            assert isinstance(event, bccnd.Message)
            told.setdefault(event.chan, []).append(event.payload)
        assert told["a/b"] == NUMBERS
        tapped = told.pop("!/tap/accepted")
        assert [frames.read_tapped(b"!/tap/accepted", one)[-1].partition(b"|")[2] for one in tapped] == NUMBERS
        assert list(told) == ["a/b"]
        assert len(sizes) < COUNT / 4


def test_a_loop_that_takes_one_message_each_time_forgets_none(daemon: Daemon, sizes: list[int]) -> None:
    with bccnd.connect(str(daemon.bus), batch=True) as bus, select.epoll() as epoll:
        epoll.register(bus, select.EPOLLIN)
        bus.subscribe("a/")
        bus.sync()
        all_at_once(daemon, "a/b")
        got: list[bytes] = []
        while len(got) < COUNT:
            assert epoll.poll(PATIENCE)
            event = bus.receive(0)
            if isinstance(event, bccnd.Message):
                got.append(event.payload)
        assert got == NUMBERS
        assert len(sizes) < COUNT / 4
        assert not epoll.poll(0)


def test_tasks_share_what_comes_in_batches(daemon: Daemon, sizes: list[int]) -> None:
    async def receive(bus: bccnd.aio.AsyncConnection) -> list[int]:
        got = []
        while (event := await bus.receive(1)) is not None:
            assert isinstance(event, bccnd.Message)
            got.append(int(event.payload))
        return got

    async def main() -> None:
        async with await bccnd.aio.connect(str(daemon.bus), batch=True) as bus:
            await bus.subscribe("a/")
            await bus.sync()
            all_at_once(daemon, "a/b")
            shares = await asyncio.gather(*(receive(bus) for _ in range(3)))
            assert all(share == sorted(share) for share in shares)
            assert sorted(number for share in shares for number in share) == list(range(COUNT))

    asyncio.run(main())
    assert 0 < len(sizes) < COUNT / 4


def test_a_batch_from_a_client_is_refused(daemon: Daemon) -> None:
    with daemon.raw() as raw, daemon.connect("a") as bus:
        raw.send(frames.batch([b"MSG a\0x"]))
        assert raw.recv(1 << 16).startswith(b"CMSG !/bccn/error\0unknown_verb ")
        assert bus.receive(0) is None


# -- in C


def test_the_c_example_prints_what_comes_in_batches(daemon: Daemon, examples: Examples) -> None:
    folder = examples.folder("c")
    program = examples.program("c", 1)
    with (
        Subscriber(daemon, folder, [*program, str(daemon.bus), "a/"]) as plain,
        Subscriber(daemon, folder, [*program, "-b", str(daemon.bus), "a/"]) as batched,
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


def test_the_c_example_tells_what_it_has_missed_of_batches(tmp_path: Path, examples: Examples) -> None:
    count = 20_000
    with (
        Daemon(tmp_path / "a", {"bus": {"queue": {"messages": 100}}}) as daemon,
        Subscriber(
            daemon, examples.folder("c"), [*examples.program("c", 1), "-b", str(daemon.bus), "flood/"]
        ) as subscriber,
        daemon.connect() as client,
    ):
        subscriber.signal(signal.SIGSTOP)
        for number in range(count):
            client.publish("flood/x", b"%d" % number)
        assert client.sync(PATIENCE) == []
        subscriber.signal(signal.SIGCONT)

        def told() -> tuple[list[int], int]:
            lost = re.findall(rb"(\d+) messages were lost", subscriber.complained())
            printed = re.findall(rb"MSG flood/x (\d+)\n", subscriber.printed())
            return [int(number) for number in printed], sum(map(int, lost))

        wait(lambda: len(told()[0]) + told()[1] >= count, f"{count} messages and gaps")
        numbers, lost = told()
        assert lost > 0
        assert numbers == sorted(set(numbers))
        assert len(numbers) + lost == count


@pytest.mark.parametrize("loop", ["drain", "poll"])
def test_the_header_and_the_daemon_mean_the_same_batches(daemon: Daemon, check: Path, loop: str) -> None:
    steps = f"ctl !/bccn/meta/on - ctl !/bccn/batch/on - sub a/ sync 20000 {loop} {COUNT} sync 20000"
    with (
        check.with_suffix(".batches").open("w+b") as out,
        subprocess.Popen(
            [str(check), str(daemon.bus), "65537", *steps.split()], stdin=subprocess.DEVNULL, stdout=out, env=SANITIZED
        ) as program,
    ):

        def lines() -> list[str]:
            return check.with_suffix(".batches").read_text().splitlines()

        try:
            wait(lambda: lines()[-1:] == ["sync 0"], "its subscription")
            all_at_once(daemon, "a/b")
            wait(lambda: lines()[-1:] == ["sync 0"] and f"{loop} 0" in lines(), "all of it")
            pattern = partial(re.fullmatch, rf"message key={b'a/b'.hex()} payload=(\w+) .* seq=(\d+) ns=\d+")
            found = [match for line in lines() if (match := pattern(line))]
            assert [bytes.fromhex(match[1]) for match in found] == NUMBERS
            assert [int(match[2]) for match in found] == [number + 1 for number in range(COUNT)]
            assert all(f"src={b'relay02/sensor/1'.hex()}" in match[0] for match in found)
            # Nearly all were waiting behind another one, in the buffer.
            assert lines().count("pending 0") < COUNT / 4
        finally:
            program.kill()


def test_a_packet_of_one_and_a_large_one_are_read_however_they_come(daemon: Daemon) -> None:
    large = b"x" * 70_000
    with daemon.raw() as raw, daemon.connect() as client:
        for packet in (b"CMSG !/bccn/batch/on", b"SUB a", b"CMSG !/bccn/sync\0x"):
            raw.send(packet)
        assert raw.recv(1 << 20) == b"CMSG !/bccn/sync\0x"
        for payload in (b"1", large):
            client.publish("a", payload)
            client.sync(PATIENCE)
            packet = raw.recv(1 << 20)
            whole = frames.message(b"a", payload)
            assert packet == whole or (payload != large and packet == frames.batch([whole]))
