"""Which epochs follow from blocks of numbers, restarts, reports, and what is carried from the days before."""

from __future__ import annotations

import pytest

from bccnd.pipeline.epochs import MOST, Carried, Sent, SeqBlock, find_epochs, overlap
from bccnd.pipeline.restarts import GUARD, Restart, Step, find_restarts

S = 1_000_000
ALWAYS = [(-(2**62), 2**62)]


def block(low: int, high: int, start: float, end: float, era: int = 0) -> SeqBlock:
    return SeqBlock(era, low, high, round(start * S), round(end * S))


def restart(at: float, noticed: bool = True, number: int = 1) -> Restart:
    return Restart(0, number, round(at * S) - 1, round(at * S), 100, 1, noticed)


#: ten numbers a second for ten seconds
STEADY = block(1, 100, 1000, 1010)
CARRIED = Carried(500, "jump", 990 * S, 90, 100, 10 * S)


@pytest.mark.parametrize(
    ("blocks", "restarts", "carried", "recorded", "expected"),
    [
        pytest.param([STEADY], [], None, ALWAYS, [(1000, "first")], id="one block"),
        pytest.param(
            [STEADY, block(1, 50, 1020, 1025, era=1)],
            [restart(1020)],
            None,
            ALWAYS,
            [(1000, "first"), (1020, "restart")],
            id="a restart",
        ),
        pytest.param(
            [STEADY, block(1, 50, 1020, 1025, era=1)],
            [restart(1020, noticed=False)],
            None,
            ALWAYS,
            [(1000, "first"), (1020, "masked")],
            id="a restart that no daemon noticed",
        ),
        pytest.param(
            [STEADY, block(5000, 5100, 1011, 1021)],
            [],
            None,
            ALWAYS,
            [(1000, "first"), (1011, "jump")],
            id="more numbers than can have been sent",
        ),
        pytest.param(
            [STEADY, block(2000, 2100, 1210, 1220)],
            [],
            None,
            ALWAYS,
            [(1000, "first")],
            id="as many as can have been sent while all were silent",
        ),
        pytest.param(
            [STEADY, block(2000, 2100, 1210, 1220)],
            [],
            None,
            [(0, 1020 * S), (1200 * S, 2000 * S)],
            [(1000, "first"), (1210, "jump")],
            id="but nobody recorded",
        ),
        pytest.param(
            [STEADY, block(5000, 5100, 1010.1, 1021)],
            [],
            None,
            ALWAYS,
            [(1000, "first"), (1010, "jump")],
            id="two in one second",
        ),
        pytest.param([block(80, 190, 985, 1010)], [], CARRIED, ALWAYS, [(500, "jump")], id="goes on over midnight"),
        pytest.param(
            [block(90, 90, 990, 990), block(1, 50, 1020, 1025, era=1)],
            [restart(1020)],
            CARRIED,
            ALWAYS,
            [(500, "jump"), (1020, "restart")],
            id="restarts behind midnight",
        ),
        pytest.param(
            [block(1, 80, 900, 980), block(1, 90, 981, 990, era=1)],
            [restart(981)],
            CARRIED,
            ALWAYS,
            [(900, "first"), (500, "jump")],
            id="had restarted before midnight",
        ),
    ],
)
def test_epochs(
    blocks: list[SeqBlock],
    restarts: list[Restart],
    carried: Carried | None,
    recorded: list[tuple[int, int]],
    expected: list[tuple[int, str]],
) -> None:
    epochs, _ = find_epochs(blocks, restarts, (), carried, recorded)
    assert [(epoch.epoch, epoch.cause) for epoch in epochs] == expected
    assert [epoch.era for epoch in epochs] == sorted(epoch.era for epoch in epochs)


def sent(last: int, at: float, first: int = 1) -> Sent:
    return Sent(first, last, round(at * S), round(at * S))


@pytest.mark.parametrize(
    ("blocks", "reports", "epochs", "reported"),
    [
        pytest.param([STEADY], [sent(150, 1015)], 1, [150], id="a tail"),
        pytest.param([STEADY], [sent(150, 1015), sent(170, 1020)], 1, [170], id="the farther one"),
        pytest.param([STEADY], [sent(50, 1015)], 1, [50], id="not behind what was received"),
        pytest.param([STEADY], [sent(900, 1015, first=500)], 1, [], id="of which nothing was received"),
        pytest.param([STEADY], [sent(2**62, 1015)], 1, [], id="that nobody can have sent"),
        pytest.param(
            [STEADY, block(20_000, 20_100, 1012, 1022)], [sent(20_100, 1030)], 1, [20_100], id="an outage that is told"
        ),
        pytest.param([STEADY, block(20_000, 20_100, 1012, 1022)], [], 2, [], id="one that is not"),
    ],
)
def test_what_reports_tell(blocks: list[SeqBlock], reports: list[Sent], epochs: int, reported: list[int]) -> None:
    found, ends = find_epochs(blocks, [], reports, None, ALWAYS)
    assert len(found) == epochs
    assert [end.key for end in ends] == reported
    assert all(end.epoch == found[-1].epoch for end in ends)


def test_numbers_without_order_are_few_epochs() -> None:
    found, _ = find_epochs([block(n * 5000, n * 5000, n, n) for n in range(3 * MOST)], [], (), None, ALWAYS)
    assert len(found) == MOST
    assert [epoch.cause for epoch in found[-2:]] == ["jump", "unordered"]


@pytest.mark.parametrize(
    ("start", "end", "expected"), [(0, 100, 30), (5, 15, 8), (15, 25, 8), (40, 50, 0), (12, 18, 6), (20, 20, 0)]
)
def test_overlap(start: int, end: int, expected: int) -> None:
    assert overlap([(-5, 10), (12, 20), (22, 34)], start, end) == expected


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
