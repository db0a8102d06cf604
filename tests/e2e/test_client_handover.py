"""Both Python clients, while the daemon is killed a hundred times under traffic: none notices."""

from __future__ import annotations

import asyncio
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bccnd
import bccnd.aio
from tests.e2e.harness import PATIENCE, Wire, datagram
from tests.e2e.supervisor import Supervisor

KILLS = 100
#: messages that may be under way: a queue of the daemon holds more
MOST = 500
CHANNELS = ("remote/x", "blocking/x", "asyncio/x")


class Traffic:
    """What was sent on each channel, by the number of the last message, and what each receiver has got."""

    def __init__(self) -> None:
        self.sent = dict.fromkeys(CHANNELS, 0)
        self.got: dict[str, list[Any]] = {"blocking": [], "asyncio": []}
        #: both receivers have subscribed, and the test
        self.begin = threading.Barrier(3, timeout=PATIENCE)
        self.begun, self.over = threading.Event(), threading.Event()

    def next(self, chan: str) -> str | None:
        """The payload of the next message; None at the end. Waits until little is under way."""
        self.begun.wait(PATIENCE)
        while not self.over.is_set():
            if sum(self.sent.values()) - min(map(len, self.got.values())) < MOST:
                self.sent[chan] += 1
                return str(self.sent[chan])
            time.sleep(0.001)
        return None

    def take(self, who: str, event: Any) -> bool:
        """Keep an event; whether more is to come."""
        if event is not None:
            self.got[who].append((event.chan, int(event.text)) if isinstance(event, bccnd.Message) else event)
        return not self.over.is_set() or (event is not None and len(self.got[who]) < sum(self.sent.values()))

    def send_remote(self, port: int) -> None:
        with Wire(port) as wire:
            while (payload := self.next("remote/x")) is not None:
                raw = datagram("relay02/x/1", self.sent["remote/x"], "remote/x", payload.encode())
                wire.send(*[raw] * (1 + self.sent["remote/x"] % 2))
                time.sleep(0.002)

    def publish(self, path: str) -> None:
        with bccnd.connect(path) as bus:
            bus.sync()
            while (payload := self.next("blocking/x")) is not None:
                bus.publish("blocking/x", payload)
                time.sleep(0.002)
            assert bus.sync() == []

    def receive(self, path: str) -> None:
        with bccnd.connect(path, batch=True) as bus, bus.subscribe("remote/", "blocking/", "asyncio/") as some:
            bus.sync()
            self.begin.wait()
            while self.take("blocking", some.receive(PATIENCE)):
                pass

    def run_asyncio(self, path: str) -> None:
        asyncio.run(self._asyncio(path))

    async def _asyncio(self, path: str) -> None:
        async with bccnd.aio.connect(path) as bus, bus.subscribe("remote/", "blocking/", "asyncio/") as some:

            async def publish() -> None:
                while (payload := await asyncio.to_thread(self.next, "asyncio/x")) is not None:
                    await bus.publish("asyncio/x", payload)
                    await asyncio.sleep(0.002)
                assert await bus.sync() == []

            await bus.sync()
            await asyncio.to_thread(self.begin.wait)
            publisher = asyncio.create_task(publish())
            while self.take("asyncio", await some.receive(PATIENCE)):
                pass
            await publisher


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_client_loses_or_repeats_a_message_while_the_daemon_is_killed_a_hundred_times(tmp_path: Path) -> None:
    chance = random.Random(1)
    traffic = Traffic()
    with Supervisor(tmp_path / "a") as supervisor:
        supervisor.start()
        path = str(supervisor.bus)
        work: list[Callable[[], None]] = [
            *(lambda: traffic.send_remote(supervisor.port), lambda: traffic.publish(path)),
            *(lambda: traffic.receive(path), lambda: traffic.run_asyncio(path)),
        ]
        threads = [threading.Thread(target=one) for one in work]
        for thread in threads:
            thread.start()
        traffic.begin.wait()
        traffic.begun.set()
        try:
            for _ in range(KILLS):
                time.sleep(chance.random() * 0.15)
                supervisor.again(signal.SIGKILL)
        finally:
            traffic.over.set()
            for thread in threads:
                thread.join()
        assert supervisor.output().count("taken over: ") == KILLS
    for who, got in traffic.got.items():
        for chan, last in traffic.sent.items():
            assert last > KILLS, chan
            assert [one[1] for one in got if one[0] == chan] == list(range(1, last + 1)), (who, chan)
        assert len(got) == sum(traffic.sent.values()), "nothing but messages"
