"""The rows from which the next daemon continues with the sources of this one.

Invariant: a source that is restored is judged, counted and watched as it would have been by this daemon.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from bccnd.core.tracking.dedup import RANK_SECONDS, TrackerTable
from bccnd.core.tracking.source import ALIVE, SILENT, UNWATCHED, Source

Column = tuple[str, Sequence[Any]]
#: what stands for a column that the daemon before did not write; without a src and a seq there is no source
MISSING: Final[dict[str, Any]] = {
    "src": b"", "first": 0, "last": 0, "epoch": 1, "heard": 0.0, "beat": 0.0, "gap": 0.0, "interval": 0.0,
    "state": UNWATCHED, "absent": b"", "missing": b"",
}  # fmt: skip


def _pack(bits: int) -> bytes:
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def pack_sources(sources: Sequence[Source]) -> dict[str, Column]:
    """Return the columns of some sources, each with its type: see `handover.image`."""
    return {
        "src": ("s", [source.src for source in sources]),
        "first": ("Q", [source.first for source in sources]),
        "last": ("Q", [source.last for source in sources]),
        "epoch": ("I", [source.epoch for source in sources]),
        "heard": ("d", [source.heard for source in sources]),
        "beat": ("d", [source.beat for source in sources]),
        "gap": ("f", [source.gap for source in sources]),
        "interval": ("f", [source.interval for source in sources]),
        "state": ("B", [source.state for source in sources]),
        "absent": ("s", [_pack(source.absent) for source in sources]),
        "missing": ("s", [_pack(source.missing) for source in sources]),
    }


def resume_sources(table: TrackerTable, rows: Iterable[tuple[Any, ...]], now: float) -> None:
    """Continue with sources, the one silent for longest first; ``rows`` have the fields of `MISSING`."""
    for src, first, last, epoch, heard, beat, gap, interval, state, absent, missing in rows:
        if not src or src in table or table.local.has(src):
            continue
        source = Source(src, last, heard)
        source.first = first
        source.epoch = epoch
        source.rank = heard + RANK_SECONDS
        source.state = state if state in (ALIVE, SILENT) else UNWATCHED
        source.beat = beat
        source.gap = gap
        source.interval = interval
        if absent:
            source.set_window(int.from_bytes(absent, "little"), int.from_bytes(missing, "little"))
        table.resume(source, now)
