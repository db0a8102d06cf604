"""The broker's connection to the bus: what waits for a daemon that goes away is counted as lost."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from pathlib import Path

from bccnd.gateways.broker_bus import MAX_WAITING, BusLink
from tests.e2e.harness import PATIENCE, Daemon


async def until(done: asyncio.Event) -> None:
    await asyncio.wait_for(done.wait(), PATIENCE)


async def fill_and_kill(daemon: Daemon, lost: Counter[str]) -> None:
    gone = asyncio.Event()

    def on_lost(reason: str, count: int) -> None:
        lost[reason] += count
        gone.set()

    link = BusLink(
        str(daemon.bus), lambda _messages: None, lambda _refusal: None, lambda _lost: None, on_lost, local=True
    )
    link.open()
    while not link.there:
        await asyncio.sleep(0.01)
    daemon.signal(signal.SIGSTOP)
    while not (reason := link.publish(b"a", b"x" * 100)):
        pass
    assert reason == "bus_full"
    link.subscribe(b"b")  # that is said again to the next daemon, and not lost
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
