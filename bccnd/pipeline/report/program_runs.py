"""Decides which silences of single sources are silences of their program.

A source is one process (`host/program/pid`). A program is silent only while none of its sources sends: an old process
that a new one replaces is a restart.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Final

from bccnd.pipeline.report import formatting as fmt
from bccnd.pipeline.report.facts import Silence, Start

#: program -> source -> when it was first and last received
Runs = dict[str, dict[str, tuple[int, int]]]
#: a program that is back within this time was restarted; one that was away for longer was silent as well
RESTART: Final = 2 * fmt.MINUTE


def merge_runs(silences: Iterable[tuple[str, Silence]], runs: Runs) -> tuple[set[Start], list[Silence]]:
    """Return the starts of processes that replaced others, and the silences of programs. ``silences`` are of
    sources."""
    starts: set[Start] = set()
    merged: dict[tuple[str, str, str, int | None], Silence] = {}
    for src, one in silences:
        others = [run for name, run in runs.get(one.program, {}).items() if name != src]
        # the others count that were received until the silence ended or, if it did not end, after it began
        if any(first <= one.start < last and last >= (one.end or last) for first, last in others):
            continue
        successor = min((first for first, _ in others if first > one.start), default=None)
        if one.end is None and successor is not None:
            if one.basis == "heartbeat" or one.kind == "host_down":
                starts.add(Start(one.program, successor, "replaced"))
            if one.kind == "open" and (one.basis != "heartbeat" or successor < one.start + RESTART):
                continue
            one = one._replace(kind="gap" if one.kind == "open" else one.kind, end=successor)
        # Processes of one program that end together are one silence; of those that end for good, the last counts.
        key = one.program, one.kind, one.basis, one.end
        merged[key] = max(one, merged.get(key, one), key=attrgetter("start"))
    return starts, sorted(merged.values(), key=attrgetter("start", "program"))
