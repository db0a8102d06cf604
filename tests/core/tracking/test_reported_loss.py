"""Losses that only reports show: exact for holes and tails of any length, counted once, and no counter falls."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

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

    def hear(self, seq: int) -> None:
        self.accepted += self.sources.judge(SRC, seq, self.now) <= LAST_ACCEPTED

    def report(self, following: int, first: int = FIRST) -> bool:
        return self.sources.take_report(SRC, first, following, self.now)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        while self.sources.sweep(self.now):
            pass

    @property
    def counts(self) -> tuple[int, int, int]:
        (sender,) = self.sources.senders
        assert (sender.received, sender.lost) == (self.accepted, self.sources.counted["lost"])
        return sender.received, sender.lost, sender.late


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
    for number in range(3 * MAX_HOLES_OF_SOURCE):
        receiver.hear(FIRST + 20_000 + 2000 * number)
    assert receiver.sources.counted["jumps"] == 2 + 2 * MAX_HOLES_OF_SOURCE


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
    assert not receiver.report(FIRST + 2 * MAX_SEQS_A_SECOND)
    assert not receiver.report((1 << 64) - 1)
    receiver.wait(HORIZON + 1)
    assert receiver.counts == (1, 0, 0)


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
