"""Finds the fewest restarts that explain all places where numbers of a source went back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Final, NamedTuple

#: microseconds by which estimates of clocks may be wrong
TOLERANCE: Final = 20_000
#: microseconds by which a datagram may reach one receiver earlier than another
GUARD: Final = 1_000


class Step(NamedTuple):
    """Numbers of a source went back at a receiver: after the time ``after``, up to ``before`` at the latest, on the
    common clock; with the record ``rec`` (-1: between two of its sessions), from ``old_key`` to ``first_key``.
    ``noticed``: by the receiver's daemon."""

    src: int
    hearer: int
    rec: int
    after: int
    before: int
    old_key: int
    first_key: int
    noticed: bool


class Restart(NamedTuple):
    """The restart with this number (1, 2, ...) of a source: the earliest row of the new numbers is of ``before``."""

    src: int
    number: int
    after: int
    before: int
    old_key: int
    first_key: int
    noticed: bool


class PlacedStep(NamedTuple):
    """The restart that a receiver's step is of: its records from ``rec`` on, which is of the common time ``before``,
    belong behind it."""

    src: int
    hearer: int
    rec: int
    number: int
    before: int


@dataclass
class _Wide:
    """A step with bounds that allow for inexact clocks."""

    step: Step
    after: int
    before: int
    number: int = 0


def find_restarts(steps: Iterable[Step]) -> tuple[list[Restart], list[PlacedStep]]:
    """The restarts of all sources, and the one that each step is of; linear in the steps but for sorting them."""
    restarts: list[Restart] = []
    placed: list[PlacedStep] = []
    for _, of_source in groupby(sorted(steps), key=attrgetter("src")):
        wide = list(_widened(of_source))
        restarts += _of_source(wide)
        placed += (PlacedStep(one.step.src, one.step.hearer, one.step.rec, one.number, one.step.before) for one in wide)
    return restarts, placed


def _widened(steps: Iterable[Step]) -> Iterator[_Wide]:
    """Allow for inexact clocks, but never so far that one moment could explain two steps of the same receiver."""
    for _, of_hearer in groupby(sorted(steps, key=attrgetter("hearer", "before")), key=attrgetter("hearer")):
        wide = [_Wide(step, step.after - TOLERANCE, step.before + TOLERANCE) for step in of_hearer]
        for earlier, later in pairwise(wide):
            middle = (earlier.step.before + later.step.after) // 2
            earlier.before = min(earlier.before, max(middle, earlier.after + 1))
            later.after = max(later.after, earlier.before)
        yield from wide


def _of_source(steps: list[_Wide]) -> Iterator[Restart]:
    """Stab the intervals of the steps by as few moments as possible, and number these."""
    groups: list[list[_Wide]] = []
    latest = 0
    for wide in sorted(steps, key=attrgetter("before")):
        if not groups or wide.after >= latest:
            groups.append([])
            latest = wide.before
        groups[-1].append(wide)
        wide.number = len(groups)
    previous: Restart | None = None
    for group in groups:
        members = [wide.step for wide in group]
        earliest = min(members, key=attrgetter("before"))
        before = earliest.before if previous is None else max(earliest.before, previous.before + 1)
        previous = Restart(
            earliest.src,
            group[0].number,
            min(max(step.after for step in members), before - 1),
            before,
            max(step.old_key for step in members),
            earliest.first_key,
            any(step.noticed for step in members),
        )
        yield previous
