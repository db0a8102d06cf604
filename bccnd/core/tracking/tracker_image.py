"""Writes and reads the sections from which the next daemon continues with the sources of this one.

Invariant: a source that is restored is judged, counted and watched as it would have been by this daemon.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from bccnd.core.formats.image_sections import BYTES, Column, Section, table
from bccnd.core.tracking.anonymous_dedup import AnonymousDedup
from bccnd.core.tracking.dedup import RELEASE_DELAY, TrackerTable
from bccnd.core.tracking.liveness import Death, Liveness
from bccnd.core.tracking.losses import Closed, Restart
from bccnd.core.tracking.source import ALIVE, SILENT, UNWATCHED, Source, set_window

#: sources in one section
CHUNK: Final = 4096
#: values of columns that the daemon before did not write; without a src there is no source
_MISSING: Final[dict[str, Any]] = {
    "src": b"", "first": 0, "last": 0, "epoch": 1, "heard": 0.0, "rank": 0.0, "beat": 0.0, "gap": 0.0, "interval": 0.0,
    "state": UNWATCHED, "absent": b"", "missing": b"",
}  # fmt: skip
_HEARD: Final = list(_MISSING).index("heard")

Sections = Mapping[str, Sequence[Section]]


def tracker_sections(sources: TrackerTable, anonymous: AnonymousDedup, liveness: Liveness) -> Iterator[Section]:
    """Yield the state of all trackers."""
    sweep = sources.table.oldest_first()
    while chunk := list(islice(sweep, CHUNK)):
        yield source_section(chunk)
    restarts = [(src, *restart) for src, restart in sources.restarts.items()]
    yield table("restarts", {"src": BYTES, "when": "d", "last": "Q"}, restarts)
    closed = [(src, *until) for src, until in sources.reported.closed.items()]
    yield table("closed", {"src": BYTES, "passed": "Q", "until": "Q"}, closed)
    dead = [(src, *death) for src, death in liveness.dead.items()]
    yield table("dead", {"src": BYTES, "heard": "d", "beat": "d", "gap": "d"}, dead)
    yield table("anonymous", {"key": BYTES, "when": "d"}, anonymous.accepted())


def source_section(sources: Sequence[Source]) -> Section:
    """Return a section of some sources."""
    columns: dict[str, Column] = {
        "src": (BYTES, [source.src for source in sources]),
        "first": ("Q", [source.first for source in sources]),
        "last": ("Q", [source.last for source in sources]),
        "epoch": ("I", [source.epoch for source in sources]),
        "heard": ("d", [source.heard for source in sources]),
        "rank": ("d", [source.rank for source in sources]),
        "beat": ("d", [source.beat for source in sources]),
        "gap": ("f", [source.gap for source in sources]),
        "interval": ("f", [source.interval for source in sources]),
        "state": ("B", [source.state for source in sources]),
        "absent": (BYTES, [_pack(source.absent) for source in sources]),
        "missing": (BYTES, [_pack(source.missing) for source in sources]),
    }
    return Section("sources", columns=columns)


def _pack(bits: int) -> bytes:
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def resume_trackers(
    left: Sections, sources: TrackerTable, anonymous: AnonymousDedup, liveness: Liveness, now: float, *, ordered: bool
) -> None:
    """Continue with the state of the daemon before. No identity may be in use yet. ``ordered`` is whether the sources
    are in the order in which they were heard."""
    rows: Iterable[tuple[Any, ...]] = (row for section in left.get("sources", ()) for row in section.rows(**_MISSING))
    _resume_sources(sources, rows if ordered else sorted(rows, key=lambda row: float(row[_HEARD])), now)
    for src, when, last in _rows(left, "restarts", src=b"", when=0.0, last=0):
        sources.restarts.put(src, Restart(when, last))
    for src, passed, until in _rows(left, "closed", src=b"", passed=0, until=0):
        sources.reported.closed.put(src, Closed(passed, until))
    for src, heard, beat, gap in _rows(left, "dead", src=b"", heard=0.0, beat=0.0, gap=0.0):
        liveness.dead.put(src, Death(heard, beat, gap))
    anonymous.resume((key, when) for key, when in _rows(left, "anonymous", key=b"", when=0.0))
    liveness.resume(now)


def identity_section(sources: TrackerTable) -> Section:
    """Return a section of the identities of this host."""
    types = {"src": BYTES, "first": "Q", "following": "Q", "run": "Q", "started": "B", "until": "d"}
    rows = [(src, own.first, own.next, own.run, own.started, own.until) for src, own in sources.local.items()]
    return table("identities", types, rows)


def resume_identities(left: Sections, sources: TrackerTable, now: float) -> None:
    """Continue with the identities, once clients are there that use some of them again."""
    missing = {"src": b"", "first": 0, "following": 0, "run": 0, "started": 0, "until": 0.0}
    for src, first, following, run, started, until in _rows(left, "identities", **missing):
        # One in use until the stop may have broadcast until then.
        sources.local.resume(src, first, following, run, bool(started), min(until, now + RELEASE_DELAY))


def _rows(left: Sections, kind: str, **missing: Any) -> Iterator[tuple[Any, ...]]:
    return (row for section in left.get(kind, ()) for row in section.rows(**missing))


def _resume_sources(trackers: TrackerTable, rows: Iterable[tuple[Any, ...]], now: float) -> None:
    for src, first, last, epoch, heard, rank, beat, gap, interval, state, absent, missing in rows:
        if not src or src in trackers or trackers.local.has(src):
            continue
        source = Source(src, last, heard)
        source.first = first
        source.epoch = epoch
        source.rank = rank
        source.state = state if state in (ALIVE, SILENT) else UNWATCHED
        source.beat = beat
        source.gap = gap
        source.interval = interval
        if absent:
            set_window(source, int.from_bytes(absent, "little"), int.from_bytes(missing, "little"))
        trackers.resume(source, now)
