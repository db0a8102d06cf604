"""The broker's connection to the bus: what each daemon is sent, and what waits for one that goes away."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bccnd.client.message import Message
from bccnd.gateways.broker.bus_client import MAX_WAITING, BusClient
from tests.client.sessions import Bare, frame
from tests.e2e.harness import PATIENCE, Daemon


async def until(done: asyncio.Event) -> None:
    await asyncio.wait_for(done.wait(), PATIENCE)


async def fill_and_kill(daemon: Daemon, lost: Counter[str]) -> None:
    gone = asyncio.Event()

    def on_lost(reason: str, count: int) -> None:
        lost[reason] += count
        gone.set()

    link = BusClient(
        str(daemon.bus), lambda _messages: None, lambda _refusal: None, lambda _lost: None, on_lost, local=True
    )
    link.start()
    while not link.up:
        await asyncio.sleep(0.01)
    daemon.signal(signal.SIGSTOP)
    while not (reason := link.publish(b"a", b"x" * 100)):
        pass
    assert reason == "bus_full"
    link.subscribe(b"b")  # that is sent again to the next daemon, and not lost
    assert not lost
    daemon.running.kill()
    await until(gone)
    link.close()


def test_publications_that_wait_for_a_daemon_that_dies_are_counted(tmp_path: Path) -> None:
    daemon, lost = Daemon(tmp_path / "a"), Counter[str]()
    try:
        asyncio.run(fill_and_kill(daemon, lost))
    finally:
        daemon.kill()
    assert lost == {"not_connected": MAX_WAITING}


@pytest.mark.parametrize("stuck", [False, True])
def test_a_daemon_that_goes_while_patterns_change_is_replaced_by_one_that_is_sent_each_once(
    bare: Bare, stuck: bool
) -> None:
    faults: list[dict[str, Any]] = []

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: faults.append(context))

        def on_messages(_messages: list[Message]) -> None:
            if stuck:
                link.subscribe(b"c")
            link.unsubscribe(b"b")

        link = BusClient(
            str(bare.address), on_messages, lambda _refusal: None, lambda _lost: None, lambda *_: None, local=True
        )
        for pattern in (b"a", b"b"):
            link.subscribe(pattern)
        link.start()
        while not link.up:
            await asyncio.sleep(0.001)
        bare.send(frame(b"a"))
        bare.restart()
        while len(bare.received) < 2 or not link.up:
            await asyncio.sleep(0.001)
        link.close()

    asyncio.run(asyncio.wait_for(scenario(), PATIENCE))
    held = [b"SUB a", b"SUB c"] if stuck else [b"SUB a"]
    assert [packet for packet in bare.received[1] if packet.startswith(b"SUB")] == held
    assert (len(bare.received), faults) == (2, [])


def test_what_strangers_change_while_the_daemon_takes_nothing_does_not_grow(tmp_path: Path) -> None:
    path = str(tmp_path / "bus.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen()

        async def scenario() -> list[bytes]:
            link = BusClient(path, lambda _: None, lambda _: None, lambda _: None, lambda *_: None, local=True)
            link.start()
            daemon, _ = listener.accept()
            with daemon:
                for number in range(20_000):
                    link.subscribe(b"%d" % number)
                    link.unsubscribe(b"%d" % number)
                link.subscribe(b"last")
                daemon.settimeout(PATIENCE)
                received = [b""]
                while received[-1] != b"SUB last":
                    received.append(daemon.recv(1 << 16))
                    await asyncio.sleep(0)
                link.close()
            return received

        received = asyncio.run(scenario())
    asked, ended = ({one.partition(b" ")[2] for one in received if one.startswith(verb)} for verb in (b"SUB", b"UNSUB"))
    assert asked - ended == {b"last"}
    assert len(received) < 10_000
