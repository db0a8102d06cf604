"""Which epoch of its source a receiver's rows belong to, for all receivers alike. Plain Python, a source at a time.

Invariant: epochs follow from the rows, not from how a receiver counts: a source has begun anew where its numbers
went back, or forward by `SANITY` or more past all that any receiver heard, and by more than it can have sent meanwhile.
One restart explains what all receivers saw of it, and what they saw is explained by as few restarts as can be; so a
receiver that missed a whole epoch, or did not notice that one began, is placed by those that did.

How it is done:

1. A receiver's rows of a source are runs (joined_runs.py), in which numbers only rise. Between two runs they went on,
   or went back: then the source has begun anew at some time between the two, on the clock that all share
   (`Run.offset`). Around a restart of the receiver itself a copy may come again as if it were new, so there it takes
   `SANITY` numbers or `HORIZON` of time to be sure.
2. The fewest moments that lie in all these stretches of time are the restarts; they divide time into eras.
3. Where a receiver saw the numbers go back, its rows are divided exactly, in the order in which it wrote them down:
   what came after the last row accepted before the restart, with numbers below the first accepted after it, is of the
   new era already: the daemon had taken it for copies. All others are divided at the moment of the restart.
4. Within an era, what all receivers heard is laid together, and what reports say was broadcast: a hole of `SANITY` that
   no receiver's numbers bridge is a jump, unless it is a loss (number_blocks.py).
5. What a report says was broadcast last, behind all that receivers heard on its day, is the tail of its epoch that day.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Final

from bccnd.pipeline.alignment.number_blocks import Block, Blocks, Span, divide
from bccnd.pipeline.records.source_runs import (
    ENDLESS,
    FIRST,
    HORIZON,
    JUMP,
    MASKED,
    RESTART,
    SANITY,
    SECOND,
    Carried,
    Epoch,
    Piece,
    Run,
    SentRange,
    Tail,
    went_back,
)

#: microseconds by which estimates of clocks may be wrong, beside how much they waver
TOLERANCE: Final = 20_000
#: microseconds by which a datagram may reach one receiver earlier than another
GUARD: Final = 1_000
#: the time in which a receiver that never stops is recording
ALWAYS: Final = ((-ENDLESS, ENDLESS),)


@dataclass
class Alignment:
    """The epochs of a source, in the order of time; the pieces, none where there is one epoch; for each day a mark that
    changes when rows of it go to other epochs, or its tails change; and the tails, at most one of an epoch and day."""

    epochs: list[Epoch]
    pieces: list[Piece] = field(default_factory=list)
    marks: dict[str, int] = field(default_factory=dict)
    tails: list[Tail] = field(default_factory=list)


@dataclass
class _StepBack:
    """Numbers went back between two runs of a receiver: after ``after``, up to ``before`` at the latest. The widened
    bounds allow for what is not known of clocks."""

    old: Run
    new: Run
    after: int
    before: int
    noticed: bool
    wide_after: int = 0
    wide_before: int = 0
    restart: int = -1


@dataclass
class _Restart:
    """A source began anew: first heard at ``before``, last heard of the old era at ``after``."""

    after: int
    before: int
    first_key: int
    old_key: int
    noticed: bool


@dataclass
class _Stretch:
    """Runs of a receiver between two steps back. It begins in era ``start`` and ends in era ``end``; ``eras`` has
    the first and the last one that each run reaches into."""

    runs: list[Run]
    opened: _StepBack | None
    closed: _StepBack | None
    start: int = 0
    end: int = 0
    eras: list[tuple[int, int]] = field(default_factory=list)


def align(
    runs: Sequence[Run],
    recorded: Sequence[tuple[int, int]] = ALWAYS,
    carried: Carried | None = None,
    sent: Sequence[SentRange] = (),
) -> Alignment:
    """The epochs of one source, from the runs of it, what is known from days before these, and what reports say was
    ``sent``. ``recorded`` has the times in which any receiver was recording, in order and apart from each other; by
    default it is all of the time."""
    by_host = attrgetter("host")
    receivers = [_in_order(list(of_host)) for _, of_host in groupby(sorted(runs, key=by_host), key=by_host)]
    if carried is None:
        return _aligned(receivers, recorded, sent, None)
    alignment = _aligned(list(_continued(receivers, carried)), recorded, sent, carried.number)
    if carried.following is None or carried.following in {epoch.number for epoch in alignment.epochs}:
        return alignment
    # Only the runs that are not here show that it began.
    return _aligned(receivers, recorded, sent, carried.following)


def _continued(receivers: Iterable[list[Run]], carried: Carried) -> Iterator[list[Run]]:
    """The runs of receivers, behind what is known from days before; of a receiver that did not hear the source last
    only if this shows that the source began anew."""
    yield [carried.run("", "")]
    for runs in receivers:
        first = runs[0]
        if (first.host, first.journal_id) == (carried.host, carried.journal_id):
            yield [carried.run(first.host, first.journal_id, first.offset), *runs]
        else:
            before = carried.run(first.host, "", first.offset)
            yield [before, *runs] if went_back(before, first) else runs


def _aligned(
    receivers: Sequence[list[Run]], recorded: Sequence[tuple[int, int]], sent: Sequence[SentRange], first: int | None
) -> Alignment:
    """The epochs, the first of which has the number ``first`` if that is known."""
    by_receiver = [_stretches(runs) for runs in receivers]
    stretches = [stretch for of_receiver in by_receiver for stretch in of_receiver]
    restarts = _restarts([stretch.closed for stretch in stretches if stretch.closed is not None])
    for of_receiver in by_receiver:
        _place(of_receiver, restarts)
    divided = _blocks(stretches, restarts, recorded, sent)
    blocks = [of_era.blocks for of_era in divided]
    epochs = _number(blocks, restarts, first)
    tails = _tails(stretches, divided, epochs)
    marks = _marks(stretches, restarts, blocks, epochs, tails)
    alignment = Alignment([epoch for of_era in epochs for epoch in of_era], marks=marks, tails=tails)
    if len(alignment.epochs) > 1:
        pieces = [piece for of_receiver in by_receiver for piece in _pieces(of_receiver, restarts)]
        alignment.pieces = [part for piece in pieces for part in _by_key(piece, blocks, epochs)]
    return alignment


def _in_order(runs: list[Run]) -> list[Run]:
    """The runs of a receiver in the order in which they were written: journal after journal."""
    began: dict[str, int] = {}
    for run in runs:
        began[run.journal_id] = min(began.get(run.journal_id, ENDLESS), run.start)
    return sorted(runs, key=lambda run: (began[run.journal_id], run.journal_id, run.from_rec))


def _stretches(runs: Sequence[Run]) -> list[_Stretch]:
    """A receiver's runs, parted where numbers went back."""
    stretches = [_Stretch([runs[0]], None, None)]
    following = [*runs[2:], None]
    for (old, new), after in zip(pairwise(runs), following, strict=False):
        noticed = _noticed(old, new, after)
        if noticed is None:
            stretches[-1].runs.append(new)
            continue
        step = _StepBack(old, new, old.end, new.start, noticed)
        stretches[-1].closed = step
        stretches.append(_Stretch([new], step, None))
    _widen([stretch.closed for stretch in stretches if stretch.closed is not None])
    return stretches


def _noticed(old: Run, new: Run, after: Run | None) -> bool | None:
    """Whether the receiver noticed that numbers went back from one run to the next; None if they did not."""
    same = old.journal_id == new.journal_id and not old.loose and not new.loose
    if same and new.masked and old.epoch == new.epoch:
        return after is not None and _goes_on(new, after)
    if same and new.epoch > old.epoch:
        return True if new.first_key <= old.last_key and not _goes_on(old, new) else None
    return False if went_back(old, new) else None


def _goes_on(swallowed: Run, new: Run) -> bool:
    """Whether a receiver that had taken the first numbers of an era for copies noticed its beginning only with ``new``;
    it may have done so with a copy."""
    return (
        swallowed.masked
        and swallowed.journal_id == new.journal_id
        and new.epoch > swallowed.epoch
        and swallowed.to_ts - swallowed.from_ts <= HORIZON
        and (new.first_key > swallowed.first_key or new.first_key >= swallowed.last_key)
        and new.first_key - swallowed.last_key < SANITY
    )


def _widen(steps: Sequence[_StepBack]) -> None:
    """Allow for wrong clocks, but never so far that one moment could explain two steps back of the same receiver."""
    for step in steps:
        step.wide_after = step.after - TOLERANCE - step.old.spread
        step.wide_before = max(step.before, step.after) + TOLERANCE + step.new.spread
    for earlier, later in pairwise(steps):
        middle = (earlier.before + later.after) // 2
        earlier.wide_before = min(earlier.wide_before, max(middle, earlier.wide_after + 1))
        later.wide_after = max(later.wide_after, earlier.wide_before)


def _restarts(steps: Sequence[_StepBack]) -> list[_Restart]:
    """The fewest moments that explain all steps back; each step gets the number of its restart."""
    groups: list[list[_StepBack]] = []
    latest = -ENDLESS
    for step in sorted(steps, key=lambda step: step.wide_before):
        if step.wide_after >= latest or not groups:
            latest = step.wide_before
            groups.append([])
        groups[-1].append(step)
        step.restart = len(groups) - 1
    restarts: list[_Restart] = []
    for group in groups:
        earliest = min(group, key=lambda step: step.before)
        before = max(earliest.before, restarts[-1].before + 1) if restarts else earliest.before
        after = min(max(step.after for step in group), before - 1)
        old_key = max(step.old.last_key for step in group)
        restarts.append(_Restart(after, before, earliest.new.first_key, old_key, any(step.noticed for step in group)))
    return restarts


def _place(stretches: Sequence[_Stretch], restarts: Sequence[_Restart]) -> None:
    """Find in which eras a receiver's stretches begin and end, and which eras each of their runs reaches into."""
    begins = [restart.before - GUARD for restart in restarts]
    for stretch in stretches:
        limit = stretch.closed.restart if stretch.closed else len(restarts)
        least = stretch.opened.restart + 1 if stretch.opened else 0
        stretch.start = min(max(least, bisect_right(begins, stretch.runs[0].start)), limit)
        stretch.end = min(max(stretch.start, bisect_right(begins, stretch.runs[-1].end)), limit)
        for run in stretch.runs:
            earliest = min(max(stretch.start, bisect_right(begins, run.start)), stretch.end)
            latest = min(max(earliest, bisect_right(begins, run.end)), stretch.end)
            stretch.eras.append((earliest, latest))


def _blocks(
    stretches: Sequence[_Stretch],
    restarts: Sequence[_Restart],
    recorded: Sequence[tuple[int, int]],
    sent: Sequence[SentRange],
) -> list[Blocks]:
    """For each era its epochs; a report is about the era in which it came."""
    spans: list[list[Span]] = [[] for _ in range(len(restarts) + 1)]
    reports: list[list[SentRange]] = [[] for _ in spans]
    begins = [restart.before - GUARD for restart in restarts]
    for report in sent:
        reports[bisect_right(begins, report.moment)].append(report)
    for stretch in stretches:
        for run, (first, last) in zip(stretch.runs, stretch.eras, strict=True):
            for era in range(first, last + 1):
                low, high, start, end = run.lo_key, run.hi_key, run.start, run.end
                if era > first:
                    low, start = max(low, min(high, restarts[era - 1].first_key)), restarts[era - 1].before
                if era < last:
                    high, end = min(high, max(run.lo_key, restarts[era].old_key)), restarts[era].after
                if low <= high:
                    spans[era].append(Span(low, high, start, end))
    divided = []
    for era, (heard, reported) in enumerate(zip(spans, reports, strict=True)):
        began = restarts[era - 1].before if era else restarts[0].after if restarts else 0
        divided.append(divide(heard, reported, recorded) if heard else Blocks([Block(-ENDLESS - 1, began)], []))
    return divided


def _tails(stretches: Sequence[_Stretch], divided: Sequence[Blocks], epochs: Sequence[Sequence[Epoch]]) -> list[Tail]:
    """The tails of all days."""
    runs: dict[tuple[str, int], list[Run]] = {}
    if any(blocks.ends for blocks in divided):
        for stretch in stretches:
            for run, (first, last) in zip(stretch.runs, stretch.eras, strict=True):
                for era in range(first, last + 1):
                    runs.setdefault((run.day, era), []).append(run)
    tails: dict[tuple[str, int], Tail] = {}
    for era, (blocks, ends) in enumerate(divided):
        lows = [*(block.low for block in blocks), ENDLESS + 1]
        for block, (day, _, key, ts, moment) in ends:
            tail = Tail(day, epochs[era][block].number, key, ts, moment)
            behind = all(run.hi_key < key or run.lo_key >= lows[block + 1] for run in runs.get((day, era), ()))
            best = tails.get(tail[:2])
            if behind and (best is None or (key, -ts) > (best.key, -best.ts)):
                tails[tail[:2]] = tail
    return sorted(tails.values())


def _number(blocks: Sequence[Sequence[Block]], restarts: Sequence[_Restart], first: int | None) -> list[list[Epoch]]:
    """The epochs of each era."""
    epochs: list[list[Epoch]] = []
    last = -ENDLESS
    for era, of_era in enumerate(blocks):
        cause = FIRST if era == 0 else RESTART if restarts[era - 1].noticed else MASKED
        epochs.append([])
        for block in of_era:
            is_first = era == 0 and not epochs[-1]
            last = first if first is not None and is_first else max(block.start // SECOND, last + 1)
            epochs[-1].append(Epoch(last, cause))
            cause = JUMP
    return epochs


def _by_key(piece: Piece, blocks: Sequence[Sequence[Block]], epochs: Sequence[Sequence[Epoch]]) -> Iterator[Piece]:
    """A piece of one era, divided by its jumps."""
    of_era = blocks[piece.epoch]
    bounds = [*(block.low for block in of_era), ENDLESS]
    for number, (low, high) in enumerate(pairwise(bounds)):
        lowest = max(piece.lo_key, low)
        highest = min(piece.hi_key, high - 1 if number < len(of_era) - 1 else high)
        if lowest <= highest:
            yield piece._replace(lo_key=lowest, hi_key=highest, epoch=epochs[piece.epoch][number].number)


def _pieces(stretches: Sequence[_Stretch], restarts: Sequence[_Restart]) -> Iterator[Piece]:
    """A receiver's journals, divided by era; ``epoch`` is the era."""
    for stretch in stretches:
        real = [run for run in stretch.runs if run.journal_id]
        for journal, runs in groupby(real, key=lambda run: run.journal_id):
            run = next(runs)
            low = stretch.opened.new.from_rec if stretch.opened and stretch.opened.new.journal_id == journal else 0
            high = stretch.closed.old.to_rec if stretch.closed and stretch.closed.old.journal_id == journal else ENDLESS
            whole = Piece(run.host, journal, low, high, -ENDLESS, ENDLESS, -ENDLESS - 1, ENDLESS, stretch.start)
            yield from _by_time(whole, stretch, restarts, run.offset)
    for before, stretch in pairwise(stretches):
        if stretch.opened is not None:
            yield from _between(stretch.opened, before.end, stretch.start)


def _by_time(piece: Piece, stretch: _Stretch, restarts: Sequence[_Restart], offset: int) -> Iterator[Piece]:
    """Divide what a receiver wrote without noticing a restart: by when the others heard of it, and by number for the
    time in which only copies came to them."""
    since = -ENDLESS
    limit = stretch.closed.restart if stretch.closed else len(restarts)
    for era in range(stretch.start, limit):
        restart = restarts[era]
        begins = restart.before + offset - GUARD
        swallowed = min(restart.after + offset + 1, begins)
        if swallowed > since:
            yield piece._replace(from_ts=since, to_ts=swallowed - 1, epoch=era)
        unsure = piece._replace(from_ts=max(swallowed, since), to_ts=begins - 1)
        if unsure.from_ts <= unsure.to_ts:
            yield unsure._replace(lo_key=restart.first_key, epoch=era)
            yield unsure._replace(hi_key=restart.first_key - 1, epoch=era + 1)
        since = max(begins, since)
    yield piece._replace(from_ts=since, epoch=limit if limit > stretch.start else stretch.start)


def _between(step: _StepBack, before: int, behind: int) -> Iterator[Piece]:
    """The rows between two runs, which the receiver took for copies."""
    old, new = step.old, step.new
    if old.journal_id == new.journal_id:
        ranges = [(old.journal_id, old.to_rec + 1, new.from_rec - 1)]
    else:
        ranges = [(old.journal_id, old.to_rec + 1, ENDLESS), (new.journal_id, 0, new.from_rec - 1)]
    for journal, low, high in ranges:
        if journal and low <= high:
            piece = Piece(old.host, journal, low, high, -ENDLESS, ENDLESS, -ENDLESS - 1, ENDLESS, before)
            yield piece._replace(lo_key=new.first_key)
            yield piece._replace(hi_key=new.first_key - 1, epoch=behind)


def _marks(
    stretches: Sequence[_Stretch],
    restarts: Sequence[_Restart],
    blocks: Sequence[Sequence[Block]],
    epochs: Sequence[Sequence[Epoch]],
    tails: Sequence[Tail],
) -> dict[str, int]:
    """For each day a checksum of how its rows are divided among epochs, and of its tails, whatever other days there
    are."""
    days: dict[str, set[tuple[tuple[object, ...], tuple[object, ...]]]] = {}
    for stretch in stretches:
        for run, (low, high) in zip(stretch.runs, stretch.eras, strict=True):
            parts = [part for era in range(low, high + 1) for part in _epochs_of(run, blocks[era], epochs[era])]
            cuts = [(restarts[era].after, restarts[era].before) for era in range(low, high)]
            if run.day:
                days.setdefault(run.day, set()).add(((run.host, run.journal_id, run.from_rec), (*parts, *cuts)))
    marks = {}
    for day, divided in days.items():
        ways = {way for _, way in divided}
        # Whose rows are of which epoch matters only where there are several.
        marks[day] = zlib.crc32(repr(sorted(divided if len(ways) > 1 else ways)).encode())
    for tail in tails:
        marks[tail.day] = zlib.crc32(repr(tail).encode(), marks.get(tail.day, 0))
    return marks


def _epochs_of(run: Run, blocks: Sequence[Block], epochs: Sequence[Epoch]) -> Iterator[tuple[int, int]]:
    """The epochs of an era that a run has numbers of, and the number from which each begins within the run."""
    lows = [*(block.low for block in blocks), ENDLESS + 1]
    for (low, following), epoch in zip(pairwise(lows), epochs, strict=True):
        if low <= run.hi_key and run.lo_key < following:
            yield epoch.number, low if low > run.lo_key else -ENDLESS - 1
