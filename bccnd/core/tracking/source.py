"""The state of one tracked source."""

from __future__ import annotations

from typing import Final

from bccnd.core.tracking.sender_counts import NO_SENDER

#: states of a source: see liveness.py. Not watched: no heartbeat was received yet
UNWATCHED: Final = 0
ALIVE: Final = 1
SILENT: Final = 2
DEAD: Final = 3


class Window:
    """The seqs of a source that were not seen, one bit each: bit i stands for the seq ``last - i``. ``missing`` has
    those of ``absent`` that are neither lost nor before the first seq."""

    __slots__ = ("absent", "missing")

    def __init__(self, absent: int, missing: int) -> None:
        self.absent = absent
        self.missing = missing


class Source:
    """A source, valid as long as it is ``tracked``.

    Of its ``epoch``, ``first`` and ``last`` are the seqs. ``window`` is None for a source without gaps. ``heard`` is
    when it was last heard (monotonic), ``rank`` when its place in the order is due for an update. ``beat``, ``gap``,
    ``interval`` and ``state`` belong to liveness.py. ``sender`` has the counters of its host. ``older`` and ``newer``
    are its neighbours in the order.
    """

    __slots__ = (
        "beat", "epoch", "first", "gap", "heard", "interval", "last", "newer", "older", "rank", "sender", "src",
        "state", "tracked", "window",
    )  # fmt: skip

    def __init__(self, src: bytes, seq: int, now: float) -> None:
        self.src = src
        self.first = self.last = seq
        self.epoch = 1
        self.heard = self.rank = now
        self.beat = 0.0
        self.gap = self.interval = 0.0
        self.state = UNWATCHED
        self.tracked = True
        self.window: Window | None = None
        self.sender = NO_SENDER
        self.older: Source | None = None
        self.newer: Source | None = None

    @property
    def absent(self) -> int:
        """The seqs that were not seen, as bits: see `Window`."""
        return 0 if self.window is None else self.window.absent

    @property
    def missing(self) -> int:
        """Those of them that are neither lost nor before the first seq."""
        return 0 if self.window is None else self.window.missing


def set_window(source: Source, absent: int, missing: int) -> None:
    """Set which seqs were not seen."""
    # Not a method, for which each source would have a pointer to a table of methods.
    if not absent:
        source.window = None
    elif source.window is None:
        source.window = Window(absent, missing)
    else:
        source.window.absent = absent
        source.window.missing = missing
