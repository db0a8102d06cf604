"""The matrix: what it believes, what it counts, and that its size is bounded."""

from __future__ import annotations

import tracemalloc
from collections import deque
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.fleet import view
from bccnd.fleet.cell_counters import MINUTES
from bccnd.fleet.matrix import BURST, FORGET, MAX_SEQS_A_SECOND, STEP, Cell, FleetMatrix
from bccnd.fleet.report_format import BadReport, HeardHost, Report, SentRun, heard_hosts

SINCE = 1_700_000_000_000


def report(heard: Sequence[HeardHost] = (), sent: Sequence[SentRun] = (), version: str = "1.0.0") -> Report:
    return Report(version, 10_000, 1, 1, ("hmac", ("aa",)), sent, heard_hosts(heard))


def counts(host: str, received: int, lost: int = 0, since: int = SINCE) -> HeardHost:
    return HeardHost(host, since, received, lost, 0, 0)


class Fleet:
    """A matrix, with the seq of each report."""

    def __init__(self, max_hosts: int = 100) -> None:
        self.matrix = FleetMatrix(lambda: max_hosts, 0.0)
        self.seq = 0

    def tell(self, host: str, told: Report, now: float, own: str = "") -> tuple[int, int]:
        self.seq += 1
        return self.matrix.update(host, f"{host}/bccnd/1".encode(), self.seq, told, now, own)

    def cells(self, minutes: int | None = None) -> list[Cell]:
        return [cell for row in self.matrix.rows for cell in self.matrix.cells(row, minutes)]


def test_a_report_is_what_the_matrix_shows() -> None:
    fleet = Fleet()
    fleet.tell("a", report([counts("b", 10, 2), counts("c", 5)]), 1.0)
    fleet.tell("b", report([counts("a", 7)]), 1.0)
    assert sorted(fleet.cells()) == [
        Cell("a", "b", 10, 2, 0, 0),
        Cell("a", "c", 5, 0, 0, 0),
        Cell("b", "a", 7, 0, 0, 0),
    ]


def test_it_says_what_others_have_received_and_lost_of_one_host_since_their_last_report() -> None:
    fleet = Fleet()
    assert fleet.tell("a", report([counts("me", 10, 2), counts("c", 5)]), 1.0, "me") == (10, 2)
    assert fleet.tell("a", report([counts("me", 30, 3)]), 11.0, "me") == (20, 1)
    assert fleet.tell("a", report([counts("me", 4, 1, SINCE + 9)]), 21.0, "me") == (4, 1)  # a new daemon


def test_the_last_minutes_are_the_difference_whatever_restarts() -> None:
    fleet = Fleet()
    for minute in range(15):
        fleet.matrix.sweep(minute * STEP)
        fleet.tell("a", report([counts("b", 100_000 * (minute + 1), minute // 14)]), minute * STEP)
    assert fleet.cells(1) == [Cell("a", "b", 200_000, 1, 0, 0)]
    assert fleet.cells(MINUTES) == [Cell("a", "b", 1_100_000, 1, 0, 0)]
    fleet.tell("a", report([counts("b", 7, 0, SINCE + 1)]), 15 * STEP)
    assert fleet.cells() == [Cell("a", "b", 7, 0, 0, 0)]
    assert fleet.cells(1) == [Cell("a", "b", 200_007, 1, 0, 0)]


@pytest.mark.parametrize(
    "absurd",
    [
        report(sent=[SentRun("a/x/1", 5, 4)]),
        report(sent=[SentRun("a/app/1", 10, 19)]),  # runs backward
        report(sent=[SentRun("a/app/1", 10, 20 + 100 * MAX_SEQS_A_SECOND)]),  # far ahead
        report([counts("b", 99)]),  # falls
        report([counts("b", 101, 4)]),
        report([counts("c", 1), counts("b", 99)]),
    ],
)
def test_an_absurd_report_changes_nothing(absurd: Report) -> None:
    fleet = Fleet()
    fleet.tell("a", report([counts("b", 100, 5)], [SentRun("a/app/1", 10, 20)]), 1.0)
    before = fleet.cells()
    with pytest.raises(BadReport) as refused:
        fleet.tell("a", absurd, 11.0)
    assert refused.value.reason == "impossible"
    assert fleet.cells() == before
    row = fleet.matrix.get("a")
    assert row is not None
    assert list(row.runs.values()) == [SentRun("a/app/1", 10, 20)]
    fleet.tell("a", report([counts("b", 101, 5)], [SentRun("a/app/1", 10, 30)]), 12.0)


def test_an_old_report_that_arrives_late_is_refused() -> None:
    matrix = FleetMatrix(lambda: 10, 0.0)
    matrix.update("a", b"a/bccnd/1", 7, report(), 1.0)
    with pytest.raises(BadReport) as refused:
        matrix.update("a", b"a/bccnd/1", 6, report(), 1.0)
    assert refused.value.reason == "outdated"
    matrix.update("a", b"a/bccnd/2", 1, report(), 1.0)  # a new daemon


def test_a_new_daemon_of_the_same_name_is_believed_once_the_old_one_is_gone_whatever_its_clock() -> None:
    matrix = FleetMatrix(lambda: 10, 0.0)
    src, old, new = b"a/bccnd/1", 1_700_000_000_000_000, 1_600_000_000_000_000
    own = [SentRun("a/bccnd/1", old, old + 8), SentRun("a/app/7", old, old + 50)]
    matrix.update("a", src, old + 7, report([counts("b", 100, 5)], own), 1.0)
    again = report([counts("b", 3, 1, SINCE - 10**9)], [SentRun("a/bccnd/1", new, new + 1)])
    with pytest.raises(BadReport) as refused:  # an old one that is sent again
        matrix.update("a", src, new, again, 11.0)
    assert refused.value.reason == "outdated"
    with pytest.raises(BadReport) as refused:  # a copy of the last one
        matrix.update("a", src, old + 7, report([counts("b", 100, 5)], own), 60.0)
    assert refused.value.reason == "outdated"
    matrix.update("a", src, new, again, 60.0)
    (row,) = matrix.rows
    assert (list(matrix.cells(row)), list(row.runs.values())) == ([Cell("a", "b", 3, 1, 0, 0)], list(again.sent))
    assert not row.silent(61.0)
    matrix.update("a", src, new + 9, report([counts("b", 4, 1, SINCE - 10**9)]), 70.0)
    with pytest.raises(BadReport):
        matrix.update("a", src, new + 8, again, 71.0)


def test_a_daemon_that_has_said_that_it_stops_may_begin_anew_at_once() -> None:
    matrix = FleetMatrix(lambda: 10, 0.0)
    matrix.update("a", b"a/bccnd/1", 900, report([counts("b", 9)])._replace(interval_ms=0), 1.0)
    matrix.update("a", b"a/bccnd/1", 500, report([counts("b", 2, 0, SINCE - 5)]), 2.0)
    assert [cell.received for cell in matrix.cells(matrix.rows[0])] == [2]


def test_a_program_that_begins_anew_at_a_lower_number_is_no_reason_to_refuse_a_report() -> None:
    fleet = Fleet()
    fleet.tell("a", report(sent=[SentRun("a/app/1", 1000, 2000)]), 1.0)
    fleet.tell("a", report(sent=[SentRun("a/app/1", 100, 150)]), 11.0)
    with pytest.raises(BadReport):
        fleet.tell("a", report(sent=[SentRun("a/app/1", 100, 149)]), 21.0)


def test_a_host_that_floods_with_reports_is_not_read() -> None:
    fleet = Fleet()
    for _ in range(int(BURST) + 1):
        fleet.tell("a", report(), 1.0)
    with pytest.raises(BadReport) as refused:
        fleet.tell("a", report(), 1.0)
    assert refused.value.reason == "too_many"
    fleet.tell("b", report(), 1.0)
    fleet.tell("a", report(), 20.0)


@pytest.mark.parametrize("interval", [0.2, 1.0, 10.0])
def test_all_that_a_host_may_send_in_its_interval_is_read(interval: float) -> None:
    fleet = Fleet()
    for number in range(100):
        for _ in range(8):
            fleet.tell("a", report()._replace(interval_ms=round(1000 * interval)), number * 0.8 * interval)


def test_the_number_of_hosts_is_bounded_and_evictions_are_counted() -> None:
    fleet = Fleet(max_hosts=50)
    for number in range(300):
        fleet.tell(f"host{number}", report([counts(f"sender{number}", 1)]), number * 0.01)
    assert len(fleet.matrix) == 50
    assert fleet.matrix.evicted == 250
    assert len(fleet.matrix.senders) == 50
    assert fleet.matrix.cells_ignored == 250
    assert {row.host for row in fleet.matrix.rows} == {f"host{number}" for number in range(250, 300)}


def test_a_sender_that_nobody_reports_any_more_gives_its_column_to_another() -> None:
    fleet = Fleet(max_hosts=2)
    fleet.tell("a", report([counts("old", 5), counts("b", 3)]), 0.0)
    fleet.tell("a", report([counts("b", 4)]), MINUTES * STEP)
    fleet.tell("a", report([counts("new", 1)]), MINUTES * STEP + 1)
    assert sorted(fleet.cells()) == [Cell("a", "b", 4, 0, 0, 0), Cell("a", "new", 1, 0, 0, 0)]


@pytest.mark.parametrize("order", [("old", "new"), ("new", "old")])
def test_a_report_never_takes_the_column_of_a_sender_that_it_names(order: tuple[str, str]) -> None:
    fleet = Fleet(max_hosts=2)
    fleet.tell("a", report([counts("old", 5), counts("b", 3)]), 0.0)
    fleet.tell("a", report([counts("b", 4)]), 5.0)
    fleet.tell("a", report([counts(name, 6) for name in order]), MINUTES * STEP + 1)
    assert sorted(fleet.cells()) == [Cell("a", "b", 4, 0, 0, 0), Cell("a", "old", 6, 0, 0, 0)]
    assert fleet.matrix.cells_ignored == 1
    fleet.tell("a", report([counts("new", 7)]), MINUTES * STEP + 6)
    assert sorted(fleet.cells()) == [Cell("a", "new", 7, 0, 0, 0), Cell("a", "old", 6, 0, 0, 0)]


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcdef"),
            st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=5),
            st.sampled_from([0.1, 5.0, 300.0, 700.0]),
        ),
        max_size=12,
    ),
    st.integers(2, 4),
)
def test_any_reports_are_taken_while_answers_are_made(told: list[tuple[str, list[str], float]], max_hosts: int) -> None:
    fleet = Fleet(max_hosts)
    now, total = 0.0, 0
    answers: list[view.Rows] = []
    for host, senders, pause in told:
        now += pause
        total += 20
        fleet.matrix.sweep(now)
        fleet.tell(host, report([counts(sender, total, total) for sender in senders]), now)
        answers += [view.fleet(fleet.matrix, "a", now, 10), view.table(fleet.matrix, "a", now)]
        for answer in answers:
            next(answer, None)
    for answer in answers:
        deque(answer, maxlen=0)
    assert len(fleet.matrix) <= max_hosts
    assert len(fleet.matrix.senders) <= max_hosts


def test_a_sender_whose_column_was_freed_while_a_table_is_made_has_counted_nothing() -> None:
    fleet = Fleet(max_hosts=2)
    fleet.tell("a", report([counts("b", 3), counts("old", 5)]), 0.0)
    table = view.table(fleet.matrix, "a", 1.0)
    rows = [next(table), next(table)]
    fleet.tell("a", report([counts("b", 4)]), 5.0)
    fleet.tell("a", report([counts("new", 9)]), MINUTES * STEP + 1)
    rows += table
    assert [row["senders"] for row in rows if row and "senders" in row] == ["b", "old"]
    (receiver,) = [row["receivers"] for row in rows if row and "receivers" in row]
    assert receiver["counts"][0] == [4, 0]


def test_a_host_is_silent_after_three_of_its_intervals_and_forgotten_after_an_hour() -> None:
    fleet = Fleet()
    fleet.tell("a", report(), 0.0)
    (row,) = fleet.matrix.rows
    assert (row.silent(35.0), row.reports(35.0)) == (False, True)
    assert (row.silent(37.0), row.reports(37.0)) == (True, False)
    fleet.matrix.notice("a", 30.0)  # its messages come, and only its reports were lost
    assert (row.silent(37.0), row.reports(37.0)) == (False, False)
    assert row.silent(70.0)
    fleet.tell("a", report()._replace(interval_ms=0), 31.0)  # it has said that no other report follows
    assert not row.silent(1000.0)
    fleet.matrix.sweep(FORGET + 32.0)
    assert fleet.matrix.rows == []


def test_two_hundred_hosts_take_some_two_megabytes() -> None:
    names = [f"relay{number:03d}" for number in range(200)]
    tracemalloc.start()
    try:
        fleet = Fleet(1000)
        for step in range(12):
            fleet.matrix.sweep(step * STEP)
            for host in names[:20]:
                heard = [counts(name, 600 * (step + 1)) for name in names if name != host]
                fleet.tell(host, report(heard), step * STEP)
        del heard
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < (2 << 20) / 10 * 1.2
