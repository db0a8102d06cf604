"""Losses that only reports and rates show: exact for holes and tails of any length, counted once."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.tracking import losses
from bccnd.core.tracking.dedup import LINK_PATIENCE, TrackerTable
from bccnd.core.tracking.losses import (
    HOLE_PATIENCE,
    LEAST,
    MAX_HOLES_OF_SOURCE,
    MAX_LOST_BY_SOURCE,
    MAX_SEQS_A_SECOND,
    RATES,
    LossBySource,
    RecentRestarts,
    Restart,
    is_explained,
    rate_of_run,
)
from tests.core import scenario
from tests.rules import dedup_rules

SECOND = 1_000_000
#: above the horizon of 2 s; after it a hole has waited in vain for a report; after it it has too and its rate is known
LATER, GIVEN_UP, DECIDED = "+3", f"+{HOLE_PATIENCE + 1}", "+70"


def trackers(*, reported: bool) -> TrackerTable:
    sources = TrackerTable(dedup_rules(horizon=2.0, deliver_late=True))
    sources.reported.is_reported = lambda _src: reported
    return sources


REPORTED = {
    "a tail is lost a horizon after the report that shows it, once however often it is reported": (
        f"1 report:2001 +1 lost=0 +2 lost=1999 report:2001 {LATER} report:2001 {LATER} lost=1999"
        f" 2001 report:2002 {LATER} lost=1999 late=0"
    ),
    "what a report shows is missing until it arrives or is lost": (
        f"1 5001 5003 open=1 report:5101 report:5104 open=5100 5004..5053 open=5050 {LATER} open=0 lost=5050 late=0"
    ),
    "closed seqs that arrive are late, and open ones behind them are lost": (  # 4, 8, 9 and 10, then 11 and 12
        f"1 report:11 {LATER} lost=9 2 3 6 7 5:reordered 13 report:14 {LATER} lost=11 late=5"
    ),
    "late messages count once, and once all have arrived nothing is remembered": (
        f"1 report:11 {LATER} lost=9 2 3 report:11 late=2 report:11 late=2 4..10 report:11 late=9 closed=0"
    ),
    "the last closed seq is late, and those behind it are not": (
        f"1 report:11 {LATER} 10 late=1 report:5001 {LATER} lost=4999 5001 {GIVEN_UP} late=1"
    ),
    "seqs that arrive in time behind late ones are not late": (
        f"1 report:11 {LATER} report:22 2..13 {LATER} 14 report:22 lost=17 late=10"
    ),
    "seqs that arrive within the horizon are not lost": f"1 report:4 2 3 open=0 {LATER} closed=0 late=0",
    "an older report that comes later changes nothing": "1 report:101 report:51 open=99",
    "a source that is gone or in another epoch has no tail": (
        "5000 report:6000 +1 30000 report:30001:30000 open=0 jumps=1"
        f" report:40000:30000 open=9999 drop open=0 {LATER} lost=0"
    ),
    "a report covers the holes of its run up to its end": (
        f"1 5001 report:2 jumps=0 report:5001 {LATER} lost=4999"
        f" 10001 report:10002:5002 jumps=1 report:10101:10002 {LATER} lost=4999"
    ),
    "each hole is covered once": f"1 5001 10001 report:5002 report:10002 {LATER} lost=9998",
    "a hole that no report covers is a jump": f"1 5001 jumps=0 {GIVEN_UP} jumps=1 10001 report:10002:9001 jumps=2",
    "a source that jumps again and again does not hold back others": "1 5000 b.1 b.5000 +30 10000 +30 jumps=1",
    "seqs before the first one heard are no loss": f"101 report:102 b.report:51 {LATER} lost=0 late=0",
    "a report of more than can have been sent is refused": (
        f"1 refused:{3 + MAX_SEQS_A_SECOND} refused:{2**64 - 1} {LATER} lost=0"
    ),
    "a report of as much is not": f"1 report:{2 + MAX_SEQS_A_SECOND} +1 report:{2 + 2 * MAX_SEQS_A_SECOND}",
    "after a restart no closed seq is late": (
        f"5000 report:6000 {LATER} lost=999 1:restart restarts=1 4 {LATER} lost=1001 late=0"
    ),
}
NOT_REPORTED = {
    "without a rate a hole is a jump": f"1 +1 5001 jumps=0 {GIVEN_UP} jumps=1",
    "as far as the rate and the silence explain it, a hole is a loss": (
        "1..500/100 +15 2001..2900/100 +10 lost=1500 +5 52901..53800/100 +10 lost=1500 jumps=1"
    ),
    "the rate of a slow source is measured for longer": "1 +36000 3000 +12 3001 +12 3002 +12 3003 +12 lost=2998",
    "a hole that no rate explains is a jump at once": f"1 +1 {5 * MAX_SEQS_A_SECOND} jumps=1",
    "the first message behind the hole does not count": (  # twice one a second explains 2000, one in 12 seconds 6000
        "1 +1000 2201..2211/1 +10 jumps=1 +36000 12201 +12 12202 +10 jumps=2 lost=0"
    ),
    "the rate is measured for its time after a burst": "1 +15 1501 1502 +0.01 1503..2402/100 +10 lost=1499",
    "a hole is decided before the next one": (
        f"1..500/100 +15 2001..2500/100 +4 22501 lost=1500 jumps=0 {DECIDED} lost=1500 jumps=1"
    ),
    "a slow source does not hold back another": "1 b.1 +3000 3000 +1 b.3000 b.3001 +9 +1 lost=2998",
    "each of several holes is decided, and a source that stops or goes has jumped": (
        "2001..2200/100 +20 4201..4400/100 +20 6401..6600/100 +10 lost=4000"
        f" +20 8601 {DECIDED} jumps=1 10601 drop jumps=2"
    ),
}
EITHER = {
    "holes are decided together, and those of a source that goes are jumps": (
        f"1 b.1 c.1 +1 100000 b.100000 c.100000 drop jumps=1 {DECIDED} jumps=3"
    ),
}
#: where at most 3 sources have holes, and 2 claims wait
CAPPED = {
    "beyond the cap the hole that waited longest is decided": (
        f"1 b.1 c.1 d.1 +1 5000 b.5000 c.5000 jumps=0 d.5000 jumps=1 {DECIDED} jumps=4"
    ),
    "beyond the cap the first claim is closed": (
        f"1 report:3 b.1 b.report:4 lost=0 c.1 c.report:5 lost=1 {LATER} lost=6 late=0"
    ),
}
HISTORIES = [
    *[(True, name, words) for name, words in {**REPORTED, **EITHER}.items()],
    *[(False, name, words) for name, words in {**NOT_REPORTED, **EITHER}.items()],
]


@pytest.mark.parametrize(("reported", "name", "words"), HISTORIES, ids=[f"{row[1]}-{row[0]}" for row in HISTORIES])
def test_histories(reported: bool, name: str, words: str) -> None:
    scenario.play(trackers(reported=reported), words)


@pytest.mark.parametrize("name", CAPPED)
@pytest.mark.parametrize("reported", [True, False])
def test_histories_beyond_caps(reported: bool, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "MAX_HOLES", 3)
    monkeypatch.setattr(losses, "MAX_CLAIMS", 2)
    scenario.play(trackers(reported=reported), CAPPED[name])


def test_of_many_holes_of_a_source_the_latest_are_covered() -> None:
    lows = [1 + 2000 * number + number * (number - 1) // 2 for number in range(3 * MAX_HOLES_OF_SOURCE + 1)]
    lost = sum(high - low - 1 for low, high in itertools.pairwise(lows) if low >= lows[2 * MAX_HOLES_OF_SOURCE])
    words = f"{' '.join(map(str, lows))} jumps={2 * MAX_HOLES_OF_SOURCE} report:{lows[-1] + 1} {LATER} lost={lost}"
    scenario.play(trackers(reported=True), words)


def test_without_reports_configured_no_source_has_any() -> None:
    scenario.play(TrackerTable(dedup_rules()), "1 5001 jumps=1")


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("arrives"), st.integers(1, 30)),
            st.tuples(st.just("lost"), st.sampled_from([1, 2, 10, 1000, 1023, 1024, 1025, 5000, 20_000])),
            st.tuples(st.just("report"), st.just(0)),
            st.tuples(st.just("time"), st.integers(0, 5)),
        ),
        max_size=30,
    )
)
def test_all_that_was_sent_is_received_or_lost(course: list[tuple[str, int]]) -> None:
    words, following, lost = ["1"], 2, 0
    for what, amount in course:
        if what == "arrives":
            words.append(f"{following}..{following + amount - 1}")
        elif what == "time":
            words.append(f"+{amount}")
        elif what == "report":
            words.append(f"report:{following}")
        following += amount if what in ("arrives", "lost") else 0
        lost += amount if what == "lost" else 0
    words += [f"report:{following}", LATER] * 2
    # Late are those that arrive before a report has shown that they were sent: none.
    scenario.play(trackers(reported=True), f"{' '.join(words)} lost={lost} late=0")


@pytest.mark.parametrize(
    ("skipped", "seqs", "duration", "silence", "explained"),
    [
        (RATES * 1000, 500, 5 * SECOND, 10 * SECOND, True),
        (RATES * 1000 + 1, 500, 5 * SECOND, 10 * SECOND, False),
        # A few messages close to each other are no rate.
        (RATES * 5, 5, 10, SECOND, True),
        (RATES * 5 + 1, 5, 10, LEAST, False),
        (1, 0, 5 * SECOND, 10 * SECOND, False),
        (0, 0, 0, 0, True),
    ],
)
def test_a_hole_is_explained_up_to_a_multiple_of_the_rate(
    skipped: int, seqs: int, duration: int, silence: int, explained: bool
) -> None:
    assert is_explained(skipped, rate_of_run(seqs, duration), silence) is explained


def test_sources_that_lost_least_are_forgotten() -> None:
    kept = LossBySource()
    for number in range(2 * MAX_LOST_BY_SOURCE):
        kept.add(b"%d" % number, number + 1)
    assert len(kept.by_src) == 2 * MAX_LOST_BY_SOURCE
    kept.add(b"worst", 10_000)
    assert sorted(kept.by_src.values()) == [*range(MAX_LOST_BY_SOURCE + 2, 2 * MAX_LOST_BY_SOURCE + 1), 10_000]


def test_a_restart_is_remembered_while_links_may_bring_copies() -> None:
    restarts = RecentRestarts(10)
    for src, when, last in ((b"a", 0.0, 7), (b"b", 1.0, 8), (b"a", 2.0, 9)):
        restarts.put(src, Restart(when, last))
    assert not restarts.sweep(1.0)
    assert [restarts.predates(b"a", seq, 2.0) for seq in (9, 10)] == [True, False]
    assert [restarts.sweep(since) for since in (1.5, 1.5, 2.5)] == [True, False, True]
    assert not restarts
    sources = TrackerTable(dedup_rules())
    scenario.play(sources, f"5000 1:restart restarts=1 +{LINK_PATIENCE - 1} ~4999:duplicate +2")
    assert not sources.restarts
