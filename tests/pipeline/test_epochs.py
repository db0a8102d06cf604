"""Which epochs follow from blocks of numbers, restarts, reports, and what is carried from the days before."""

from __future__ import annotations

import pytest

from bccnd.pipeline.epochs import Carried, Sent, SeqBlock, find_epochs
from bccnd.pipeline.restarts import GUARD, Restart, Step, find_restarts

S = 1_000_000
ALWAYS = [(-(2**62), 2**62)]
#: ten numbers a second for ten seconds
STEADY = "1-100@1000-1010"
CARRIED = Carried(500, "jump", 990 * S, 90, 100, 10 * S)


def block(text: str, era: int) -> SeqBlock:
    """A block of numbers, from when to when in seconds: ``1-100@1000-1010``."""
    (low, high), (start, end) = (part.split("-") for part in text.split("@"))
    return SeqBlock(era, int(low), int(high), round(float(start) * S), round(float(end) * S))


def blocks_of(history: str) -> tuple[list[SeqBlock], list[Restart]]:
    """Blocks in their order, with restarts between them that a daemon noticed: ``restart@1020``."""
    blocks: list[SeqBlock] = []
    restarts: list[Restart] = []
    for part in history.split():
        word, _, at = part.partition("@")
        if word == "restart":
            moment = round(float(at) * S)
            restarts.append(Restart(0, len(restarts) + 1, moment - 1, moment, 100, 1, True))
        else:
            blocks.append(block(part, len(restarts)))
    return blocks, restarts


#: what happened, what is carried from the day before, when anything was recorded -> the epochs
HISTORIES: dict[str, tuple[str, Carried | None, list[tuple[int, int]], str]] = {
    "as many as can have been sent": (f"{STEADY} 2000-2100@1210-1220", None, ALWAYS, "first@1000"),
    "but nothing was recorded": (
        f"{STEADY} 2000-2100@1210-1220",
        None,
        [(0, 1020 * S), (1200 * S, 2000 * S)],
        "first@1000 jump@1210",
    ),
    "two in one second": (f"{STEADY} 5000-5100@1010.1-1021", None, ALWAYS, "first@1000 jump@1010"),
    "a restart before midnight": ("1-80@900-980 restart@981 1-90@981-990", CARRIED, ALWAYS, "first@900 jump@500"),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_epochs_follow_from_blocks_restarts_and_the_day_before(name: str) -> None:
    history, carried, recorded, expected = HISTORIES[name]
    epochs, _ = find_epochs(*blocks_of(history), (), carried, recorded)
    assert " ".join(f"{epoch.cause}@{epoch.epoch}" for epoch in epochs) == expected
    assert [epoch.era for epoch in epochs] == sorted(epoch.era for epoch in epochs)


OUTAGE = f"{STEADY} 20000-20100@1012-1022"
#: blocks, reports (from, to, at) -> how many epochs, and the last number that was reported
REPORTS: dict[str, tuple[str, list[tuple[int, int, int]], int, list[int]]] = {
    "the farther one": (STEADY, [(1, 150, 1015), (1, 170, 1020)], 1, [170]),
    "not behind what was received": (STEADY, [(1, 50, 1015)], 1, [50]),
    "of which nothing was received": (STEADY, [(500, 900, 1015)], 1, []),
    "that cannot have been sent": (STEADY, [(1, 2**62, 1015)], 1, []),
    "one that is not": (OUTAGE, [], 2, []),
}


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_makes_a_tail_and_explains_an_outage(name: str) -> None:
    history, told, epochs, reported = REPORTS[name]
    reports = [Sent(first, last, at * S, at * S) for first, last, at in told]
    found, ends = find_epochs(blocks_of(history)[0], [], reports, None, ALWAYS)
    assert len(found) == epochs
    assert [end.key for end in ends] == reported
    assert all(end.epoch == found[-1].epoch for end in ends)


def step(hearer: int, after: float, before: float, noticed: bool = False) -> Step:
    return Step(1, hearer, round(before), round(after * S), round(before * S), 100, 1, noticed)


@pytest.mark.parametrize(
    ("steps", "moments", "noticed"),
    [
        ([], [], []),
        ([step(1, 10, 11)], [11], [False]),
        ([step(1, 10, 11), step(2, 10.5, 11.001, noticed=True)], [11], [True]),
        ([step(1, 10, 11), step(2, 5, 30), step(3, 19, 20)], [11, 20], [False, False]),
        ([step(1, 10, 11), step(1, 12, 13), step(2, 9, 40)], [11, 13], [False, False]),
        # by clocks that differ by some milliseconds
        ([step(1, 10, 11), step(2, 11.01, 11.02)], [11], [False]),
    ],
)
def test_the_fewest_restarts_that_explain_all(steps: list[Step], moments: list[float], noticed: list[bool]) -> None:
    restarts, placed = find_restarts(steps)
    assert [one.before / S for one in restarts] == moments
    assert [one.noticed for one in restarts] == noticed
    assert len(placed) == len(steps)
    assert GUARD < S
    # no restart explains two steps of one receiver
    assert len({(one.hearer, one.number) for one in placed}) == len(placed)
