"""Programs in Python, blocking and on asyncio, whose daemon is restarted and killed, and which ask for batches."""

from __future__ import annotations

import contextlib
import signal
import threading
from pathlib import Path

import pytest

import bccnd
from bccnd.client.session import Refusal
from bccnd.core import frames
from tests.client.sessions import Join, both
from tests.e2e.harness import PATIENCE, Daemon, Wire, datagram, payloads

COUNT = 1000
NUMBERS = [b"%d" % number for number in range(COUNT)]


def restart(daemon: Daemon) -> None:
    daemon.stop()
    daemon.start()


def kill(daemon: Daemon) -> None:
    daemon.kill()
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


def all_at_once(daemon: Daemon) -> None:
    """Have the daemon find so many datagrams when it looks."""
    with Wire(daemon.port) as wire:
        daemon.signal(signal.SIGSTOP)
        wire.send(*(datagram("relay02/sensor/1", number + 1, "a/b", NUMBERS[number]) for number in range(COUNT)))
        daemon.signal(signal.SIGCONT)


@both
def test_with_batches_a_client_receives_what_others_do_in_fewer_packets(
    tmp_path: Path, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    read_batch = frames.read_batch

    def counted(packet: bytes) -> list[bytes]:
        together = read_batch(packet)
        sizes.append(len(together))
        return together

    monkeypatch.setattr(frames, "read_batch", counted)
    with (
        Daemon(tmp_path / "d") as daemon,
        daemon.connect("a/") as plain,
        join(str(daemon.bus), batch=True) as batched,
    ):
        batched.subscribe("a/")
        assert batched.sync() == []
        all_at_once(daemon)
        got = [plain.receive(PATIENCE) for _ in range(COUNT)]
        assert not sizes
        assert [batched.receive(PATIENCE) for _ in range(COUNT)] == got
        assert all(isinstance(one, bccnd.Message) for one in got)
        assert len(sizes) < COUNT / 4
        assert batched.receive(0) is None
