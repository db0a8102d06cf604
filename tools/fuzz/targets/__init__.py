"""What is fuzzed: functions from bytes to an outcome, by name.

A target takes any bytes. It raises only where something is wrong, and it gives the same outcome for the same bytes
in every build, so that an outcome can be compared. What a stranger can cause is part of the outcome, never an error.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Final, NamedTuple

#: an input, and what becomes of it: bytes, numbers, text and tuples of those, as `repr` shows them
Run = Callable[[bytes], object]
#: an input and a number -> an input that passes deeper
Repair = Callable[[bytes, int], bytes]


class Target(NamedTuple):
    """A function of a module. ``size`` is how long an input may be; ``runs`` is how many of them `make fuzz` does: as
    many as take it some fifteen seconds. ``repairs`` says that its module can put an input right, so that it passes
    deeper."""

    name: str
    module: str
    about: str
    runs: int
    size: int = 1600
    repairs: bool = False

    def load(self) -> tuple[Run, Repair | None]:
        """Return the function, and what puts an input right, if there is such a thing."""
        module = import_module(f"tools.fuzz.targets.{self.module}")
        return getattr(module, self.name), module.repair if self.repairs else None


TARGETS: Final = {
    target.name: target
    for target in (
        Target("datagram", "segment", "a datagram at doors of every kind", 12_000, repairs=True),
        Target("stream", "segment", "datagrams of a few sources over time, by segments and links", 6_000, 400),
        Target("frames", "bus", "what a client sends, through a whole bus", 2_500, 4000),
        Target("client", "bus", "what a client reads from the daemon", 30_000, 2000),
        Target("http", "bus", "what a visitor of the metrics sends", 1_500, 2000),
        Target("link", "gateways", "frames of links, and their filters", 30_000, 400),
        Target("broker", "gateways", "what a subscriber sends, in any cut", 6_000, 1200),
        Target("publication", "gateways", "what a publisher sends, and topics", 30_000, 1600),
        Target("line", "gateways", "what a gateway reads from the daemon", 20_000, 2000),
        Target("capture", "files", "captures, read in any pieces", 15_000, 1200, repairs=True),
        Target("log", "files", "logs of the recorder, torn and damaged", 1_500, 1200),
        Target("sessions", "files", "Parquet files of sessions", 2_000, 6000),
        Target("rows", "files", "rows as bytes, and what the tap tells", 30_000, 1200),
        Target("configuration", "files", "configuration files", 1_500, 600),
        Target("image", "handover", "the image that the daemon before left", 10_000, 1200),
        Target("record", "handover", "the record of a client that the daemon before left", 10_000, 1200),
    )
}
