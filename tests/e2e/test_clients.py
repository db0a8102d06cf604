"""Programs in Python, blocking and on asyncio, and a daemon that is restarted, killed, and faster than they are."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from pathlib import Path

import pytest

import bccnd
from bccnd.client.session import Refusal
from tests.client.sessions import Join, both
from tests.e2e.harness import PATIENCE, Daemon, payloads, wait


def restart(daemon: Daemon) -> None:
    daemon.stop()
    daemon.start()


def kill(daemon: Daemon) -> None:
    daemon.signal(signal.SIGKILL)
    assert daemon.process is not None
    daemon.process.wait(PATIENCE)
    daemon.start()


def back(bus: bccnd.Connection) -> None:
    """Wait until a connection says that it was away; nothing but that may come."""
    event = bus.receive(PATIENCE)
    assert isinstance(event, bccnd.Reconnected), event
    assert 0 < event.seconds < 2 * PATIENCE


@both
def test_a_subscriber_hears_of_an_absence_and_goes_on_with_what_it_holds(join: Join, tmp_path: Path) -> None:
    with Daemon(tmp_path / "d") as daemon, join(str(daemon.bus)) as bus:
        bus.subscribe("a", "a", "b/", "gone")
        bus.unsubscribe("gone")
        assert bus.sync() == []
        with daemon.connect() as other:
            other.publish("a", "1")
        assert payloads(bus, 1) == [b"1"]
        for times, end in enumerate((restart, kill), 1):
            end(daemon)
            back(bus)
            assert bus.reconnects == times
            with daemon.connect() as other:
                other.publish("gone", "x")
                other.publish("a", "2")
                other.publish("b/c", "3")
                other.sync(PATIENCE)
            assert payloads(bus, 2) == [b"2", b"3"]
        with daemon.connect() as other:
            bus.unsubscribe("a")
            assert bus.sync() == []
            other.publish("a", "held once more")
            assert payloads(bus, 1) == [b"held once more"]
            bus.unsubscribe("a")
            assert bus.sync() == []
            other.publish("a", "not held")
            other.publish("b/c", "held")
            assert payloads(bus, 1) == [b"held"]
            bus.unsubscribe("a")
            assert bus.sync() == [Refusal("not_subscribed", "a")]


@both
def test_under_traffic_a_killed_daemon_costs_messages_but_neither_order_nor_doubles(join: Join, tmp_path: Path) -> None:
    over = threading.Event()

    def publish(bus: bccnd.Connection) -> None:
        number = 0
        while not over.is_set():
            with contextlib.suppress(bccnd.BusError):  # a daemon may need its time to be back
                bus.publish("a", str(number))
            number += 1
            over.wait(0.001)

    with Daemon(tmp_path / "d") as daemon, join(str(daemon.bus)) as bus, daemon.connect() as publisher:
        bus.subscribe("a")
        bus.sync()
        thread = threading.Thread(target=publish, args=[publisher])
        thread.start()
        try:
            numbers = [int(one) for one in payloads(bus, 100)]
            for times in range(1, 3):
                kill(daemon)
                while bus.reconnects < times:
                    numbers += map(int, payloads(bus, 1))
                numbers += map(int, payloads(bus, 100))
        finally:
            over.set()
            thread.join()
        assert numbers == sorted(set(numbers))
        assert bus.lost == 0


@both
def test_the_largest_packets_go_through_and_larger_ones_are_refused_here(join: Join, tmp_path: Path) -> None:
    with Daemon(tmp_path / "d") as daemon, join(str(daemon.bus)) as bus:
        bus.subscribe("a")
        largest = "x" * (409_600 - len("MSG a\0"))
        bus.publish("a", largest)
        assert bus.sync() == [Refusal("too_long", "a")]  # no datagram holds it
        assert [len(one) for one in payloads(bus, 1)] == [len(largest)]
        with pytest.raises(bccnd.BusError, match="too_long"):
            bus.publish("a", largest * 2)
        bus.publish("a", "and on it goes")
        assert payloads(bus, 1) == [b"and on it goes"]


@both
def test_a_slow_reader_knows_of_every_message_that_it_has_or_has_not_got(join: Join, tmp_path: Path) -> None:
    count = 6000
    with Daemon(tmp_path / "d") as daemon, join(str(daemon.bus)) as bus, daemon.connect() as publisher:
        bus.subscribe("a")
        bus.sync()
        for number in range(count):
            publisher.publish("a", f"{number}".ljust(300))
        publisher.sync(PATIENCE)
        got: list[int] = []
        at = 0
        while at < count:
            event = bus.receive(PATIENCE)
            if isinstance(event, bccnd.Message):
                assert int(event.payload) == at  # a gap stands where the messages would have stood
                got.append(at)
                at += 1
            else:
                assert isinstance(event, bccnd.Gap)
                at += event.lost
        assert 0 < bus.lost == count - len(got)


def test_what_many_tasks_publish_arrives_in_the_order_of_each(tmp_path: Path) -> None:
    tasks, each = 30, 100

    async def publish(path: str) -> None:
        async with await bccnd.aio.connect(path) as bus:

            async def one(task: int) -> None:
                for number in range(each):
                    await bus.publish(f"task/{task}", str(number))

            await asyncio.gather(*(one(task) for task in range(tasks)))
            assert await bus.sync(PATIENCE) == []

    with Daemon(tmp_path / "d", {"bus": {"queue": {"messages": tasks * each}}}) as daemon:
        with daemon.connect("task/") as bus:
            thread = threading.Thread(target=lambda: asyncio.run(publish(str(daemon.bus))))
            thread.start()
            heard: dict[str, list[int]] = {}
            for _ in range(tasks * each):
                event = bus.receive(PATIENCE)
                assert isinstance(event, bccnd.Message)
                heard.setdefault(event.chan, []).append(int(event.payload))
            thread.join()
        assert heard == {f"task/{task}": list(range(each)) for task in range(tasks)}


@both
def test_who_asks_when_the_daemon_was_restarted_is_answered_by_the_new_one(join: Join, tmp_path: Path) -> None:
    with Daemon(tmp_path / "d") as daemon, join(str(daemon.bus)) as bus:
        name = bus.identity()
        daemon.stop()
        thread = threading.Thread(target=daemon.start)
        thread.start()
        assert bus.ask(b"!/bccn/whoami", timeout=PATIENCE) == name.encode()
        thread.join()


@both
def test_one_too_many_gets_its_place_when_another_leaves(join: Join, tmp_path: Path) -> None:
    with Daemon(tmp_path / "d", {"bus": {"max_clients": 1}}) as daemon:
        first = daemon.connect()
        with join(str(daemon.bus)) as bus:
            assert bus.receive(PATIENCE) == Refusal("too_many_clients", "")
            first.close()
            back(bus)
            bus.subscribe("a")
            bus.publish("a", "here")
            assert payloads(bus, 1) == [b"here"]


@both
def test_tag_and_modes_are_in_force_and_stay_so(join: Join, tmp_path: Path) -> None:
    with Daemon(tmp_path / "d") as daemon, join(str(daemon.bus)) as bus:
        name = bus.identity()
        bus.subscribe("a")
        bus.tag("door")
        bus.echo(False)
        bus.blocking(soft="discard", hard="block")
        bus.order("stack")
        assert bus.sync() == []
        for ended in (False, True):
            if ended:
                restart(daemon)
                back(bus)
            assert bus.identity() == f"{name}/door"
            bus.publish("a", "mine")
            with daemon.connect() as other:
                other.publish("a", "theirs")
            assert payloads(bus, 1) == [b"theirs"]
        with pytest.raises(bccnd.BusError) as caught:
            bus.tag("two words")
        assert caught.value.reason == "bad_tag"
        bus.tag("")
        bus.echo(True)
        assert bus.identity() == name
        bus.publish("a", "mine")
        assert payloads(bus, 1) == [b"mine"]
        with pytest.raises(bccnd.BusError) as caught:
            bus.ask(b"!/bccn/nosuch")
        assert caught.value.reason == "unknown_control"


def test_a_loop_that_only_looks_when_it_is_told_to_survives_a_restart(tmp_path: Path) -> None:
    """As `select` and `loop.add_reader` use the blocking client."""
    with Daemon(tmp_path / "d") as daemon, bccnd.connect(str(daemon.bus)) as bus:
        bus.subscribe("a")
        bus.sync()

        async def hear() -> list[object]:
            loop = asyncio.get_running_loop()
            heard: list[object] = []
            done = asyncio.Event()

            def look() -> None:
                while (event := bus.receive(0)) is not None:
                    heard.append(event)
                    if isinstance(event, bccnd.Message):
                        done.set()

            loop.add_reader(bus, look)
            await asyncio.to_thread(restart, daemon)
            await asyncio.to_thread(wait, lambda: bus.reconnects == 1, "the client to be back")
            with daemon.connect() as other:
                other.publish("a", "x")
            async with asyncio.timeout(PATIENCE):
                await done.wait()
            loop.remove_reader(bus)
            return heard

        away, message = asyncio.run(hear())
        assert isinstance(away, bccnd.Reconnected)
        assert isinstance(message, bccnd.Message)
