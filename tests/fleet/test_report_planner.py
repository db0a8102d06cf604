"""The planner of reports: within eight datagrams, news first, and everything in its turn."""

from __future__ import annotations

from bccnd.fleet.report_format import HeardHost, Report, SentRun, read_report
from bccnd.fleet.report_planner import MAX_DATAGRAMS, TOLD, ReportPlanner

ROOM = 1300


def heard(number: int, received: int = 0, lost: int = 0) -> HeardHost:
    return HeardHost(f"relay{number:04d}", 1_700_000_000_000, received, lost, 0, 0)


def write(planner: ReportPlanner, sent: list[SentRun], heard: list[HeardHost]) -> list[Report]:
    payloads = planner.write("1.0.0", 10_000, ("hmac", ("aa",)), sent, heard, ROOM)
    assert all(len(payload) <= ROOM for payload in payloads)
    assert len(payloads) <= MAX_DATAGRAMS
    reports = [read_report("relay01", payload) for payload in payloads]
    assert [(one.part, one.parts) for one in reports] == [(part, len(reports)) for part in range(1, len(reports) + 1)]
    return reports


def hosts(reports: list[Report]) -> list[str]:
    return [one.host for report in reports for one in report.heard.rows]


def test_a_small_fleet_fits_into_one_datagram_which_tells_all() -> None:
    sent, others = [SentRun("relay01/bccnd/1", 5, 9)], [heard(number) for number in range(5)]
    planner = ReportPlanner()
    for _ in range(TOLD + 3):
        (report,) = write(planner, sent, others)
        assert (report.sent, sorted(report.heard.rows), report.keys) == (sent, others, ("hmac", ("aa",)))


def test_of_a_thousand_hosts_news_is_told_at_once() -> None:
    planner = ReportPlanner()
    told: set[str] = set()
    lost = dict.fromkeys(range(1000), 0)
    waiting: set[str] = set()
    for turn in range(20):
        lost[turn * 7] += 1
        shown = set(hosts(write(planner, [], [heard(one, 10**6 + turn, lost[one]) for one in range(1000)])))
        told |= shown
        if turn > 12:  # once all have been told a few times
            assert not waiting - shown
            waiting = {f"relay{turn * 7:04d}"} - shown
    assert len(told) == 1000


def test_busy_sources_leave_room_for_what_was_received() -> None:
    planner = ReportPlanner()
    told: set[str] = set()
    for turn in range(60):
        sent = [SentRun(f"relay01/program/{number}", 1, 10**9 + turn) for number in range(1000)]
        told |= set(hosts(write(planner, sent, [heard(one, turn) for one in range(20)])))
    assert len(told) == 20


def test_what_was_forgotten_by_others_is_not_remembered_here() -> None:
    planner = ReportPlanner()
    write(planner, [SentRun("relay01/app/1", 1, 2)], [])
    assert [one.sent for one in write(planner, [], [])] == [[]]
