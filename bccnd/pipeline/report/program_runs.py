"""Decides which silences of single sources are silences of their program.

A source is one process (`host/program/pid`). A program is silent only while none of its sources sends: an old process
that a new one replaces is a restart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from bccnd.pipeline.report import formatting as fmt
from bccnd.pipeline.report.facts import Silence, Start

#: program -> source -> when it was first and last received
Runs = dict[str, dict[str, tuple[int, int]]]
#: a program that is back within this time was restarted; one that was away for longer was silent as well
RESTART: Final = 2 * fmt.MINUTE


def merge_runs(silences: Iterable[tuple[str, Silence]], runs: Runs) -> tuple[list[Start], list[Silence]]:
    """The starts of processes that replaced others, and the silences of programs, ordered by time. Each silence comes
    with its source."""
    starts: set[Start] = set()
    merged: dict[tuple[str, str, str, int | None], Silence] = {}
    for src, silence in silences:
        others = {name: run for name, run in runs.get(silence.program, {}).items() if name != src}
        if any(first <= silence.start and _covers(last, silence) for first, last in others.values()):
            continue
        if silence.end is None:
            successor = _successor(silence, others)
            if successor is not None:
                if silence.basis == "heartbeat" or silence.kind == "host_down":
                    starts.add(Start(silence.program, successor, "replaced"))
                if silence.kind == "open" and (silence.basis != "heartbeat" or successor < silence.start + RESTART):
                    continue
                kind = "gap" if silence.kind == "open" else silence.kind
                silence = silence._replace(kind=kind, end=successor)
        # Processes of one program that end together are one silence; of those that end for good, the last counts.
        key = silence.program, silence.kind, silence.basis, silence.end
        if key not in merged or silence.start > merged[key].start:
            merged[key] = silence
    return list(starts), sorted(merged.values(), key=lambda one: (one.start, one.program))


def _covers(last: int, silence: Silence) -> bool:
    """Whether a source that was last received then was received until the silence ended, or after an open one began."""
    return last > silence.start if silence.end is None else last >= silence.end


def _successor(silence: Silence, others: Mapping[str, tuple[int, int]]) -> int | None:
    """When the next process of the program was first received."""
    return min((first for first, _ in others.values() if first > silence.start), default=None)
