"""The matrix: what it believes, what it counts, and that its size is bounded."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import nullcontext

import pytest

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
        self.max_hosts = max_hosts
        self.matrix = FleetMatrix(lambda: self.max_hosts, 0.0)
        self.seq = 0

    def tell(self, host: str, told: Report, now: float, own: str = "") -> tuple[int, int]:
        self.seq += 1
        return self.matrix.update(host, f"{host}/bccnd/1".encode(), self.seq, told, now, own)

    def cells(self, minutes: int | None = None) -> list[Cell]:
        return [cell for row in self.matrix.rows for cell in self.matrix.cells(row, minutes)]


#: one step a line: the time and who reports, as HOST, HOST/PID or HOST#SEQ, then what it has received and lost of each
#: sender, as SENDER=RECEIVED/LOST or, from a daemon that began at another time, SENDER=RECEIVED/LOST@SINCE, and which
#: numbers its sources have sent; "stops" says that no report follows, "!" and a reason that the report is refused; a
#: line that begins with "=" has all cells that there are then
HISTORIES = {
    "a report is shown": """
        1 a b=10/2 c=5
        1 b c=7
        = a>b=10/2 a>c=5/0 b>c=7/0
    """,
    **{
        f"an absurd report changes nothing: {absurd}": f"""
        1 a b=100/5 a/app/1:10-20
        11 a {absurd} !impossible
        = a>b=100/5
        12 a b=101/5 a/app/1:10-30
        """
        for absurd in (
            *("a/x/1:5-4", "a/app/1:10-19", f"a/app/1:10-{20 + 100 * MAX_SEQS_A_SECOND}"),
            *("b=99", "b=101/4", "c=1 b=99"),
        )
    },
    "a late report is refused, one of a new daemon is not": """
        1 a#7
        1 a#6 !outdated
        1 a/2#1
    """,
    "a daemon of the same name is believed once the old one is silent, whatever its clock": """
        1 a#1707 b=100/5 a/bccnd/1:1700-1708 a/app/7:1700-1750
        11 a#1600 b=3/1@-9 a/bccnd/1:1600-1601 !outdated
        60 a#1707 b=100/5 !outdated
        60 a#1600 b=3/1@-9 a/bccnd/1:1600-1601
        = a>b=3/1
        70 a#1609 b=4/1@-9
        71 a#1608 b=3/1@-9 !outdated
    """,
    "a daemon that has said that it stops may begin anew at once": """
        1 a#900 b=9 stops
        2 a#500 b=2@-5
        = a>b=2/0
    """,
    "a program may begin anew at a lower number, and then not run backward": """
        1 a a/app/1:1000-2000
        11 a a/app/1:100-150
        21 a a/app/1:100-149 !impossible
    """,
    "a host that floods with reports is not read, and others are": f"""
        {"1 a; " * (int(BURST) + 1)}
        1 a !too_many
        1 b
        20 a
    """,
    "a sender that is not reported any more gives its column to another": f"""
        0 a b=3 old=5
        {MINUTES * STEP} a b=4
        {MINUTES * STEP + 1} a new=1
        = a>b=4/0 a>new=1/0
    """,
    **{
        f"a report never takes the column of a sender that it names: {order}": f"""
        0 a b=3 old=5
        5 a b=4
        {MINUTES * STEP + 1} a {order}
        = a>b=4/0 a>old=6/0
        {MINUTES * STEP + 6} a new=7
        = a>new=7/0 a>old=6/0
        """
        for order in ("old=6 new=6", "new=6 old=6")
    },
}


def reported(words: Sequence[str]) -> Report:
    heard, sent = [], []
    for word in words:
        if "=" in word:
            sender, counted, since = re.fullmatch(r"(\w+)=([\d/]+)(?:@(-?\d+))?", word).groups()  # type: ignore[union-attr]
            received, *lost = map(int, counted.split("/"))
            heard.append(counts(sender, received, sum(lost), SINCE + int(since or 0)))
        elif ":" in word:
            src, _, numbers = word.partition(":")
            sent.append(SentRun(src, *map(int, numbers.split("-"))))
    return report(heard, sent)._replace(interval_ms=0 if "stops" in words else 10_000)


def step(fleet: Fleet, line: str) -> None:
    time, who, *words = line.split()
    reason = words.pop()[1:] if words and words[-1].startswith("!") else ""
    host, pid, seq = re.fullmatch(r"(\w+)(?:/(\d+))?(?:#(\d+))?", who).groups()  # type: ignore[union-attr]
    fleet.seq = int(seq) if seq else fleet.seq + 1
    with pytest.raises(BadReport) if reason else nullcontext() as refused:
        fleet.matrix.update(host, f"{host}/bccnd/{pid or 1}".encode(), fleet.seq, reported(words), float(time))
    assert not reason or refused.value.reason == reason  # type: ignore[union-attr]


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_the_matrix_keeps_what_can_be_believed(history: str) -> None:
    fleet = Fleet(max_hosts=2)
    for line in filter(None, re.split(r"[\n;] *", history)):
        if line.startswith("="):
            shown = {f"{one.receiver}>{one.sender}={one.received}/{one.lost}" for one in fleet.cells()}
            assert shown == set(line.split()[1:])
        else:
            step(fleet, line)


def test_an_update_says_what_is_new_about_one_host() -> None:
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


@pytest.mark.parametrize("interval", [0.2, 1.0, 10.0])
def test_all_that_a_host_may_send_in_its_interval_is_read(interval: float) -> None:
    fleet = Fleet()
    for number in range(100):
        for _ in range(8):
            fleet.tell("a", report()._replace(interval_ms=round(1000 * interval)), number * 0.8 * interval)


def test_the_number_of_hosts_is_bounded() -> None:
    fleet = Fleet(max_hosts=50)
    for number in range(300):
        fleet.tell(f"host{number}", report([counts(f"sender{number}", 1)]), number * 0.01)
    assert len(fleet.matrix) == 50
    assert len(fleet.matrix.senders) == 50
    assert fleet.matrix.evicted == 250 + 250  # receivers, and senders left out
    assert {row.host for row in fleet.matrix.rows} == {f"host{number}" for number in range(250, 300)}
    fleet.max_hosts = 10
    fleet.tell("new", report([counts("sender299", 1)]), 3.0)
    assert len(fleet.matrix) == 10


def test_a_sender_whose_column_is_freed_has_counted_nothing() -> None:
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


def test_a_host_falls_silent_and_is_forgotten() -> None:
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
