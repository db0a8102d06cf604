"""Losses that only reports show: exact for holes and tails of any length, counted once, and no counter falls."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.tracking import reported_loss
from bccnd.core.tracking.dedup import TrackerTable
from bccnd.core.tracking.reported_loss import (
    HOLE_PATIENCE,
    MAX_HOLES_OF_SOURCE,
    MAX_SEQS_A_SECOND,
    RATE_SECONDS,
    count_missing,
)
from bccnd.core.wire.verdicts import LAST_ACCEPTED
from tests.rules import dedup_rules

SRC = b"a/app/1"
FIRST = 10**15
HORIZON = 2.0


class Receiver:
    """Trackers that follow one source, and what they have counted of it."""

    def __init__(self, *, reported: bool = True, deliver_late: bool = True) -> None:
        self.sources = TrackerTable(dedup_rules(horizon=HORIZON, deliver_late=deliver_late))
        self.sources.reported.is_reported = lambda _src: reported
        self.now = 100.0
        self.accepted = 0

    def hear(self, seq: int, src: bytes = SRC) -> None:
        self.accepted += self.sources.judge(src, seq, self.now) <= LAST_ACCEPTED

    def report(self, following: int, first: int = FIRST, src: bytes = SRC) -> bool:
        return self.sources.take_report(src, first, following, self.now)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        while self.sources.sweep(self.now):
            pass

    @property
    def counts(self) -> tuple[int, int, int]:
        (sender,) = self.sources.senders
        assert (sender.received, sender.lost) == (self.accepted, self.sources.counted["lost"])
        return sender.received, sender.lost, sender.late

    @property
    def jumps(self) -> int:
        return self.sources.counted["jumps"]


def test_a_tail_is_lost_a_horizon_after_the_report_that_shows_it() -> None:
    receiver = Receiver()
    receiver.hear(FIRST)
    receiver.report(FIRST + 2000)
    receiver.wait(HORIZON / 2)
    assert receiver.counts == (1, 0, 0)
    receiver.wait(HORIZON)
    assert receiver.counts == (1, 1999, 0)
    for _ in range(3):  # the same is told again
        receiver.report(FIRST + 2000)
        receiver.wait(HORIZON + 1)
    assert receiver.counts == (1, 1999, 0)
    receiver.hear(FIRST + 2000)
    receiver.report(FIRST + 2001)
    receiver.wait(HORIZON + 1)
    assert receiver.counts == (2, 1999, 0)
    assert (receiver.sources.counted["jumps"], receiver.sources.missing) == (0, 0)


def test_what_a_report_shows_is_missing_until_it_arrives_or_is_lost() -> None:
    receiver = Receiver()
    receiver.hear(FIRST)
    receiver.hear(FIRST + 5000)
    receiver.hear(FIRST + 5002)
    assert count_missing(receiver.sources) == 1
    receiver.report(FIRST + 5100)
    receiver.report(FIRST + 5103)
    assert count_missing(receiver.sources) == 4999 + 1 + 100
    for seq in range(FIRST + 5003, FIRST + 5053):
        receiver.hear(seq)
    assert count_missing(receiver.sources) == 4999 + 1 + 50
    receiver.wait(HORIZON + 1)
    assert (count_missing(receiver.sources), receiver.counts) == (0, (53, 5050, 0))


def test_what_arrives_after_it_was_lost_is_late_and_nothing_falls() -> None:
    receiver = Receiver()
    receiver.hear(FIRST)
    receiver.report(FIRST + 10)
    receiver.wait(HORIZON + 1)
    assert receiver.counts == (1, 9, 0)
    for seq in (1, 2, 5, 6, 4, 12):  # 3, 7, 8 and 9 never come, and 10 and 11 are missing anew
        receiver.hear(FIRST + seq)
    receiver.report(FIRST + 13)
    receiver.wait(HORIZON + 1)
    assert receiver.counts == (7, 11, 5)


def test_late_messages_count_once_and_nothing_is_remembered_once_all_have_passed() -> None:
    receiver = Receiver()
    receiver.hear(FIRST)
    receiver.report(FIRST + 10)
    receiver.wait(HORIZON + 1)
    receiver.hear(FIRST + 1)
    receiver.hear(FIRST + 2)
    for _ in range(3):
        receiver.report(FIRST + 10)
        assert receiver.counts == (3, 9, 2)
    for seq in range(3, 10):
        receiver.hear(FIRST + seq)
    receiver.report(FIRST + 10)
    assert receiver.counts == (10, 9, 9)
    assert not receiver.sources.reported.closed


def test_the_last_of_what_was_lost_is_late_and_what_follows_is_not() -> None:
    receiver = Receiver()
    receiver.hear(FIRST)
    receiver.report(FIRST + 10)
    receiver.wait(HORIZON + 1)
    receiver.hear(FIRST + 9)
    assert receiver.counts == (2, 9, 1)
    receiver.report(FIRST + 5000)
    receiver.wait(HORIZON + 1)
    receiver.hear(FIRST + 5000)
    receiver.wait(HOLE_PATIENCE + 1)
    assert (receiver.counts, receiver.jumps) == ((3, 4999, 1), 0)


def test_what_arrives_in_time_behind_late_messages_is_not_late() -> None:
    receiver = Receiver()
    receiver.hear(FIRST)
    receiver.report(FIRST + 10)
    receiver.wait(HORIZON + 1)
    receiver.report(FIRST + 21)
    for seq in range(1, 13):
        receiver.hear(FIRST + seq)
    receiver.wait(HORIZON + 1)
    receiver.hear(FIRST + 13)
    receiver.report(FIRST + 21)
    assert receiver.counts == (14, 17, 10)


def test_what_arrives_within_the_horizon_is_neither_missing_nor_lost() -> None:
    receiver = Receiver()
    receiver.hear(FIRST)
    receiver.report(FIRST + 3)
    receiver.hear(FIRST + 1)
    receiver.hear(FIRST + 2)
    assert count_missing(receiver.sources) == 0
    receiver.wait(HORIZON + 1)
    assert receiver.counts == (3, 0, 0)
    assert (receiver.sources.losses.by_src, dict(receiver.sources.reported.closed)) == ({}, {})


def test_the_highest_number_that_a_report_has_shown_counts() -> None:
    receiver = Receiver()
    receiver.hear(FIRST)
    receiver.report(FIRST + 100)
    receiver.report(FIRST + 50)  # it was under way for longer
    assert count_missing(receiver.sources) == 99


def test_what_was_shown_of_a_source_that_is_gone_or_began_anew_is_not_missing() -> None:
    receiver = Receiver()
    receiver.hear(5000)
    receiver.report(6000, first=1)
    receiver.wait(HORIZON / 2)
    receiver.hear(30_000)
    receiver.report(30_001, first=30_000)
    assert count_missing(receiver.sources) == 0
    receiver.report(40_000, first=30_000)
    assert count_missing(receiver.sources) == 9999
    receiver.sources.drop(SRC)
    assert count_missing(receiver.sources) == 0
    receiver.wait(HORIZON + 1)
    assert receiver.sources.counted["lost"] == 0


def test_a_report_explains_the_holes_of_its_run_up_to_its_end() -> None:
    receiver = Receiver()
    receiver.hear(FIRST)
    receiver.hear(FIRST + 5000)
    receiver.report(FIRST + 1)  # it was sent before the hole
    assert receiver.jumps == 0
    receiver.report(FIRST + 5000)
    receiver.wait(HORIZON + 1)
    assert (receiver.counts, receiver.jumps) == ((2, 4999, 0), 0)
    receiver.hear(FIRST + 10_000)
    receiver.report(FIRST + 10_001, first=FIRST + 5001)  # a run that begins with the hole
    assert receiver.jumps == 1
    receiver.report(FIRST + 10_100, first=FIRST + 10_001)  # and one that begins behind what was heard
    receiver.wait(HORIZON + 1)
    assert (receiver.counts, receiver.jumps) == ((3, 4999, 0), 1)


def test_each_hole_is_explained_once() -> None:
    receiver = Receiver()
    for seq in (0, 5000, 10_000):
        receiver.hear(FIRST + seq)
    receiver.report(FIRST + 5001)
    receiver.report(FIRST + 10_001)
    receiver.wait(HORIZON + 1)
    assert receiver.counts == (3, 2 * 4999, 0)


def test_without_an_answer_who_reports_none_is_taken_to() -> None:
    sources = TrackerTable(dedup_rules())
    sources.judge(SRC, FIRST, 0.0)
    sources.judge(SRC, FIRST + 5000, 0.0)
    assert sources.counted["jumps"] == 1


def test_a_source_that_is_not_reported_jumps_as_before() -> None:
    receiver = Receiver(reported=False)
    receiver.hear(FIRST)
    receiver.hear(FIRST + 5000)
    receiver.wait(HOLE_PATIENCE + 1)
    assert receiver.counts == (2, 0, 0)
    assert receiver.sources.counted["jumps"] == 1


def go_on(receiver: Receiver, following: int, rate: int, seconds: int) -> int:
    """Hear a source for some time at its rate; return its next number."""
    for _ in range(seconds * rate):
        receiver.hear(following)
        following += 1
        receiver.wait(1 / rate)
    return following


def test_a_hole_of_a_source_without_reports_is_a_loss_as_far_as_its_rate_and_silence_explain_it() -> None:
    receiver = Receiver(reported=False)
    following = go_on(receiver, FIRST, 100, 5)
    receiver.wait(15)
    following = go_on(receiver, following + 1500, 100, 9)
    receiver.wait(RATE_SECONDS)
    assert receiver.counts == (1400, 1500, 0)
    receiver.wait(5)
    following = go_on(receiver, following + 50_000, 100, 9)  # more than it can have sent
    receiver.wait(RATE_SECONDS)
    assert receiver.counts == (2300, 1500, 0)
    assert receiver.sources.counted["jumps"] == 1
    assert receiver.sources.missing == 0


def test_the_rate_of_a_slow_source_is_measured_for_longer() -> None:
    receiver = Receiver(reported=False)
    receiver.hear(1)
    receiver.wait(12 * 3000)
    for seq in (3000, 3001, 3002, 3003):
        receiver.hear(seq)
        receiver.wait(12)
    assert receiver.counts == (5, 2998, 0)


def test_a_hole_that_no_rate_explains_is_a_jump_at_once() -> None:
    receiver = Receiver(reported=False)
    receiver.hear(FIRST)
    receiver.wait(1)
    receiver.hear(FIRST + 5 * MAX_SEQS_A_SECOND)
    assert receiver.jumps == 1


def test_the_rate_is_that_of_all_messages_behind_the_hole_but_the_first() -> None:
    receiver = Receiver(reported=False)
    receiver.hear(FIRST)
    receiver.wait(1000)
    skipped = FIRST + 2200  # twice the rate of one a second explains 2000
    receiver.hear(skipped)
    for number in range(1, 11):
        receiver.wait(1)
        receiver.hear(skipped + number)
    receiver.wait(RATE_SECONDS)
    assert (receiver.sources.counted["lost"], receiver.jumps) == (0, 1)
    receiver.wait(36_000)
    skipped += 10_000  # twice the rate of one in 12 seconds explains 6000
    receiver.hear(skipped)
    receiver.wait(12)
    receiver.hear(skipped + 1)
    receiver.wait(RATE_SECONDS)
    assert (receiver.sources.counted["lost"], receiver.jumps) == (0, 2)


def test_the_rate_is_measured_for_its_time_after_a_burst() -> None:
    receiver = Receiver(reported=False)
    receiver.hear(FIRST)
    receiver.wait(15)
    receiver.hear(FIRST + 1500)
    receiver.hear(FIRST + 1501)
    receiver.wait(0.01)
    go_on(receiver, FIRST + 1502, 100, 9)
    receiver.wait(RATE_SECONDS)
    assert (receiver.sources.counted["lost"], receiver.jumps) == (1499, 0)


def test_a_hole_is_decided_before_the_next_one() -> None:
    receiver = Receiver(reported=False)
    following = go_on(receiver, FIRST, 100, 5)
    receiver.wait(15)
    following = go_on(receiver, following + 1500, 100, 5)
    receiver.wait(4)
    receiver.hear(following + 20_000)
    assert (receiver.sources.counted["lost"], receiver.jumps) == (1500, 0)
    receiver.wait(HOLE_PATIENCE + RATE_SECONDS)
    assert (receiver.sources.counted["lost"], receiver.jumps) == (1500, 1)


def test_a_slow_source_does_not_hold_back_the_measurement_of_another() -> None:
    receiver = Receiver(reported=False)
    for src in (SRC, b"b/app/1"):
        receiver.hear(1, src)
    receiver.wait(3000)
    receiver.hear(3000)
    receiver.wait(1)
    receiver.hear(3000, b"b/app/1")
    receiver.hear(3001, b"b/app/1")
    receiver.wait(RATE_SECONDS - 1)  # the first is measured again: nothing has come of it
    receiver.wait(1)
    assert receiver.sources.counted["lost"] == 2998


def test_each_of_several_holes_is_decided_and_a_source_that_stops_or_goes_has_jumped() -> None:
    receiver = Receiver(reported=False)
    following = FIRST
    for _ in range(3):
        receiver.wait(20)
        following = go_on(receiver, following + 2000, 100, 2)
    receiver.wait(RATE_SECONDS)
    assert receiver.counts == (600, 4000, 0)
    receiver.wait(20)
    receiver.hear(following + 2000)
    receiver.wait(HOLE_PATIENCE + RATE_SECONDS)
    assert receiver.sources.counted["jumps"] == 1
    receiver.hear(following + 4000)
    receiver.sources.drop(SRC)
    assert receiver.sources.counted["jumps"] == 2


def test_a_hole_that_no_report_explains_is_a_jump() -> None:
    receiver = Receiver()
    receiver.hear(FIRST)
    receiver.hear(FIRST + 5000)
    assert receiver.sources.counted["jumps"] == 0
    receiver.wait(HOLE_PATIENCE + 1)
    assert receiver.sources.counted["jumps"] == 1
    receiver.hear(FIRST + 10_000)
    receiver.report(FIRST + 10_001, first=FIRST + 9000)  # the source has gone on with other numbers
    assert (receiver.sources.counted["jumps"], receiver.counts) == (2, (3, 0, 0))
    low = FIRST + 10_000
    for number in range(3 * MAX_HOLES_OF_SOURCE):
        low += 2000 + number
        receiver.hear(low)
    assert receiver.jumps == 2 + 2 * MAX_HOLES_OF_SOURCE
    receiver.report(low + 1)
    receiver.wait(HORIZON + 1)
    latest = range(2 * MAX_HOLES_OF_SOURCE, 3 * MAX_HOLES_OF_SOURCE)
    assert receiver.counts[1] == sum(1999 + number for number in latest)


@pytest.mark.parametrize("reported", [True, False])
def test_holes_are_decided_together_and_those_of_a_source_that_goes_are_jumps(reported: bool) -> None:
    receiver = Receiver(reported=reported)
    names = [b"a/app/%d" % number for number in range(3)]
    for src in names:
        receiver.hear(1, src)
    receiver.wait(1)
    for src in names:
        receiver.hear(100_000, src)
    receiver.sources.drop(names[0])
    assert receiver.jumps == 1
    receiver.wait(HOLE_PATIENCE + RATE_SECONDS)
    assert receiver.jumps == 3


def test_a_source_that_jumps_again_and_again_does_not_hold_back_the_holes_of_others() -> None:
    receiver = Receiver()
    for src in (SRC, b"b/app/1"):
        receiver.hear(1, src)
        receiver.hear(5000, src)
    receiver.wait(HOLE_PATIENCE / 2)
    receiver.hear(10_000)
    receiver.wait(HOLE_PATIENCE / 2)
    assert receiver.jumps == 1


@pytest.mark.parametrize("reported", [True, False])
def test_the_sources_with_holes_are_capped_and_the_first_gives_way(
    reported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reported_loss, "MAX_HOLES", 3)
    receiver = Receiver(reported=reported)
    names = [b"a/app/%d" % number for number in range(4)]
    for src in names:
        receiver.hear(1, src)
    receiver.wait(1)
    jumps = []
    for src in names:
        receiver.hear(5000, src)
        jumps.append(receiver.jumps)
    assert jumps == [0, 0, 0, 1]
    receiver.wait(HOLE_PATIENCE + RATE_SECONDS)
    assert receiver.jumps == 4


def test_the_checks_that_wait_are_capped_and_the_first_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reported_loss, "MAX_DUE", 2)
    receiver = Receiver()
    names = [b"a/app/%d" % number for number in range(3)]
    for number, src in enumerate(names):
        receiver.hear(FIRST, src)
        receiver.report(FIRST + 2 + number, src=src)
    receiver.wait(HORIZON + 1)
    assert receiver.sources.counted["lost"] == 2 + 3


def test_what_was_sent_before_it_was_first_heard_is_no_loss_here() -> None:
    receiver = Receiver()
    receiver.hear(FIRST + 100)
    receiver.report(FIRST + 101)
    receiver.sources.take_report(b"b/app/1", FIRST, FIRST + 50, receiver.now)
    receiver.wait(HORIZON + 1)
    assert receiver.counts == (1, 0, 0)


def test_a_report_that_cannot_be_is_refused() -> None:
    receiver = Receiver()
    receiver.hear(FIRST)
    assert not receiver.report(FIRST + 2 + MAX_SEQS_A_SECOND)
    assert not receiver.report((1 << 64) - 1)
    receiver.wait(HORIZON + 1)
    assert receiver.counts == (1, 0, 0)
    quick = Receiver()
    quick.hear(FIRST)
    assert quick.report(FIRST + 1 + MAX_SEQS_A_SECOND)
    quick.wait(1)
    assert quick.report(FIRST + 1 + 2 * MAX_SEQS_A_SECOND)


def test_a_restart_forgets_what_was_owed() -> None:
    receiver = Receiver()
    receiver.hear(5000)
    receiver.report(6000, first=1)
    receiver.wait(HORIZON + 1)
    assert receiver.counts == (1, 999, 0)
    receiver.hear(1)
    receiver.hear(4)
    receiver.wait(HORIZON + 1)
    assert receiver.counts == (3, 1001, 0)


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
def test_received_and_lost_are_what_was_sent(course: list[tuple[str, int]]) -> None:
    receiver, following = Receiver(), FIRST + 1
    receiver.hear(FIRST)
    for what, amount in course:
        before = receiver.counts
        if what == "arrives":
            for _ in range(amount):
                receiver.hear(following)
                following += 1
        elif what == "lost":
            following += amount
        elif what == "report":
            receiver.report(following)
        else:
            receiver.wait(amount)
        assert all(now >= earlier for now, earlier in zip(receiver.counts, before, strict=True))
    for _ in range(2):
        receiver.report(following)
        receiver.wait(HORIZON + 1)
    received, lost, late = receiver.counts
    assert (received + lost, late) == (following - FIRST, 0)
    assert (receiver.sources.missing, receiver.sources.counted["jumps"]) == (0, 0)
