"""Programs in Python, blocking and on asyncio, and a daemon that is restarted, killed, and faster than they are."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import bccnd
from bccnd.client.session import Refusal
from tests.client.sessions import Join, both
from tests.e2e.harness import PATIENCE, Daemon, payloads


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One for the tests that leave it running."""
    with Daemon(tmp_path_factory.mktemp("daemon") / "d", {"bus": {"queue": {"messages": 3000}}}) as daemon:
        yield daemon


def restart(daemon: Daemon) -> None:
    daemon.stop()
    daemon.start()


def kill(daemon: Daemon) -> None:
    daemon.signal(signal.SIGKILL)
    assert daemon.process is not None
    daemon.process.wait(PATIENCE)
    daemon.start()


@both
def test_a_client_reports_an_absence_and_goes_on_with_all_that_it_has_asked_for(join: Join, tmp_path: Path) -> None:
    with Daemon(tmp_path / "d") as daemon, join(str(daemon.bus)) as bus:
        name = bus.identity()
        bus.subscribe("a", "a", "b/", "gone")
        bus.unsubscribe("gone")
        bus.tag("door")
        bus.echo(False)
        bus.blocking(soft="discard", hard="block")
        bus.order("stack")
        assert bus.sync() == []
        for times, end in enumerate((restart, kill), 1):
            end(daemon)
            event = bus.receive(PATIENCE)
            assert isinstance(event, bccnd.Reconnected), event
            assert event.seconds > 0
            assert bus.reconnects == times
            assert bus.identity() == f"{name}/door"
            bus.publish("a", "mine")
            assert bus.sync(PATIENCE) == []
            with daemon.connect() as other:
                other.publish("gone", "x")
                other.publish("a", "1")
                assert payloads(bus, 1) == [b"1"]
                other.publish("b/c", "2")
                assert payloads(bus, 1) == [b"2"]
        bus.tag("")
        bus.echo(True)
        assert bus.identity() == name
        bus.unsubscribe("a")
        assert bus.sync() == []
        bus.publish("a", "held once more")
        assert payloads(bus, 1) == [b"held once more"]
        bus.unsubscribe("a")
        assert bus.sync() == []
        bus.publish("a", "not held")
        bus.publish("b/c", "held")
        assert payloads(bus, 1) == [b"held"]
        bus.unsubscribe("a")
        assert bus.sync() == [Refusal("not_subscribed", "a")]


@both
def test_refusals_are_errors_where_an_answer_is_waited_for(join: Join, daemon: Daemon) -> None:
    with join(str(daemon.bus)) as bus:
        with pytest.raises(bccnd.BusError) as caught:
            bus.tag("two words")
        assert caught.value.reason == "bad_tag"
        with pytest.raises(bccnd.BusError) as caught:
            bus.ask(b"!/bccn/nosuch")
        assert caught.value.reason == "unknown_control"


@pytest.mark.slow
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
def test_a_question_to_a_daemon_that_is_restarted_is_answered_by_the_new_one(join: Join, tmp_path: Path) -> None:
    with Daemon(tmp_path / "d") as daemon, join(str(daemon.bus)) as bus:
        name = bus.identity()
        daemon.stop()
        thread = threading.Thread(target=daemon.start)
        thread.start()
        assert bus.ask(b"!/bccn/whoami", timeout=PATIENCE) == name.encode()
        thread.join()


@both
def test_the_largest_packets_go_through_and_larger_ones_are_refused_here(join: Join, daemon: Daemon) -> None:
    with join(str(daemon.bus)) as bus:
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
def test_a_slow_reader_knows_of_every_message_that_it_has_or_has_not_got(join: Join, daemon: Daemon) -> None:
    count = 6000
    with join(str(daemon.bus)) as bus, daemon.connect() as publisher:
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


def test_what_many_tasks_publish_arrives_in_the_order_of_each(daemon: Daemon) -> None:
    tasks, each = 30, 100

    async def publish(path: str) -> None:
        async with await bccnd.aio.connect(path) as bus:

            async def one(task: int) -> None:
                for number in range(each):
                    await bus.publish(f"task/{task}", str(number))

            await asyncio.gather(*(one(task) for task in range(tasks)))
            assert await bus.sync(PATIENCE) == []

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
