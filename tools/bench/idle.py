"""What a daemon without traffic takes, with no source known and with 100,000: `python -m tools.bench --axes idle`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Final

from tests.e2e.harness import Daemon, Wire, datagram
from tools.bench.axes import BCCND_LINE, MEMORY, Axis, Point, Shown
from tools.bench.measure import Figures
from tools.bench.programs import cpu_of, kib_of
from tools.bench.relays import Place

#: how long each is watched; a quick run watches for one second
SECONDS: Final = 180
#: of a daemon as it is shipped
REPORTS: Final = {"reports": {"interval": "10s"}}
#: so many datagrams are sent at a time, and read before the next are
BATCH: Final = 200


def measure(sources: int, place: Place) -> Figures:
    """Return the share of a core that a daemon takes after it has received from so many sources, and its MB."""
    with Daemon(place.folder, REPORTS) as daemon, Wire(daemon.port) as wire:
        for number in range(sources):
            wire.send(datagram(f"host{number % 1000}/program/{number}", 1, "bench/x", b""))
            if number % BATCH == 0:
                time.sleep(0.005)
        time.sleep(3)
        begin, began = cpu_of(daemon.pid), time.monotonic_ns()
        time.sleep(min(SECONDS, place.most / 4096))
        share = (cpu_of(daemon.pid) - begin) / (time.monotonic_ns() - began)
        return {"core": share, "resident_mb": kib_of(daemon.pid) * 1024 / 1e6}


def points() -> Iterator[Point]:
    for sources in (0, 100_000):
        yield Point("idle", "bccnd", sources, partial(measure, sources))


IDLE: Final = Axis(
    "idle", "Without traffic", "sources", BCCND_LINE, points, (Shown("core", "share of a core", ".2%"), MEMORY)
)
