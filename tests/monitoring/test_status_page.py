"""The status page: problems come first, the page may only do what it needs, and its cost is bounded."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from timeit import repeat
from typing import cast

import pytest

from bccnd.core.observing.counter_history import STEP
from bccnd.core.tracking.liveness import DEAD, SILENT, Death
from bccnd.core.wire.verdicts import ACCEPTED, DUPLICATE, NUMBERS
from bccnd.log.handlers import LogLine
from bccnd.monitoring.daemon_state import DaemonState
from bccnd.monitoring.status_collector import MAX_CHANNELS, MAX_LINES, MAX_ROWS, MAX_SILENT
from bccnd.monitoring.status_findings import ATTENTION, GATEWAY_START_TIME, ONGOING, OVER, RECENT, WELL, state_of
from bccnd.monitoring.status_page import CACHE_TIME, PAGE_POLICY, StatusPage
from bccnd.snapshot import HostStatus, LogEvent, Problem, to_json
from tests.html_reader import HtmlReader
from tests.monitoring.pages import Daemon, finished, open_segment
from tests.rules import bus_limits
from tests.support import Hub

AT = 1_795_000_000.0
EVIL = "<img src=x onerror=alert(1)>\"'&</td></table><script>alert(2)</script>"


def found_by(status: HostStatus) -> list[tuple[str, bool]]:
    """The findings, each with whether it is ongoing."""
    return [(one.text, one.now) for one in status.findings]


@pytest.mark.parametrize(("present", "state"), [([], WELL), ([False], OVER), ([False, True], ATTENTION)])
def test_the_state_is_that_of_the_worst_finding(present: list[bool], state: str) -> None:
    assert state_of([Problem("a", "drops", now) for now in present]) == state


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with Hub(tmp_path, limits=bus_limits(max_clients=50)) as hub:
        segment = open_segment("here")
        yield Daemon(hub, segment)
        segment.close()


def test_the_first_view_shows_what_has_happened_since_the_start(daemon: Daemon) -> None:
    daemon.begin()
    daemon.clock += 1.0
    daemon.channels = [(b"demo/1", 100, 1)]
    daemon.segments[0].counters.judged(NUMBERS["integrity_failed"], 7)
    for _ in range(2):
        facts = daemon.facts()
        assert [(one.chan, one.messages, one.receivers) for one in facts.channels] == [("demo/1", 100, 1)]
        assert found_by(facts) == [("integrity_failed", True)]
        daemon.clock += 1.0
    assert daemon.facts().rates[daemon.drop("integrity_failed").key] == pytest.approx(7 / 3)


def test_a_drop_is_shown_until_it_is_long_over(daemon: Daemon) -> None:
    began = time.time()
    daemon.begin()
    # What was counted before is shown, and needs no attention now.
    facts = daemon.facts()
    assert (facts.state, facts.findings, [one.name for one in facts.drops if one.now or one.since]) == (WELL, [], [])
    assert json.loads(to_json(facts))["now"]["host"] == "relay<01>"
    counters = daemon.segments[0].counters
    counters.judged(DUPLICATE, 5)
    daemon.go_on(60)
    assert (daemon.facts().state, daemon.drop("duplicate").serious) == (WELL, False)
    for _ in range(4):
        counters.judged(NUMBERS["integrity_failed"], 10)
        daemon.go_on(STEP)
    one = daemon.drop("integrity_failed")
    wall = time.time()
    slack = 1 + wall - began
    assert (one.times, one.where, one.serious, one.now) == (40, "here", True, True)
    assert daemon.facts().rates[one.key] == pytest.approx(2.0)
    assert one.since == one.first == pytest.approx(wall - 3 * STEP, abs=slack)
    assert one.last == pytest.approx(wall, abs=slack)
    assert one.metric == 'bccnd_datagrams_total{verdict="integrity_failed"}'
    assert found_by(daemon.facts()) == [("integrity_failed", True)]
    daemon.go_on(ONGOING + STEP)
    assert one.key not in daemon.facts().rates
    assert found_by(daemon.facts()) == [("integrity_failed", False)]
    daemon.go_on(RECENT)
    assert daemon.facts().state == WELL
    assert daemon.drop("integrity_failed").times == 40


def test_what_the_network_has_lost_is_shown_by_source(daemon: Daemon) -> None:
    began = time.time()
    daemon.begin()
    sources = daemon.sources
    for src, seqs in ((b"h/bad/1", (1, 5)), (b"h/worse/2", (1, 50)), (b"h/good/3", (1, 2))):
        for seq in seqs:
            if sources.judge(src, seq, daemon.clock) < 0:
                sources.judge_new(src, seq, daemon.clock)
    assert daemon.facts().now.sources.missing == 51
    sources.sweep(daemon.clock + 3)
    daemon.go_on(STEP)
    facts = daemon.facts()
    assert [(one.src, one.lost) for one in facts.sources] == [("h/worse/2", 48), ("h/bad/1", 3), ("h/good/3", 0)]
    assert facts.sources[0].lost_last == pytest.approx(time.time(), abs=1 + time.time() - began)
    assert daemon.drop("messages_lost").times == facts.now.sources.lost == 51
    assert found_by(facts) == [("messages_lost", True)]


def test_the_silent_and_the_dead_are_named(daemon: Daemon) -> None:
    for half in range(21):
        moment = daemon.clock - 10 + half / 2
        for src in (b"h/quiet/1", b"h/well/2") if not half else (b"h/well/2",):
            if daemon.sources.judge(src, half + 1, moment) < 0:
                daemon.sources.judge_new(src, half + 1, moment)
            daemon.liveness.on_heartbeat(src, moment)
        daemon.liveness.sweep(moment)
    daemon.liveness.dead[b"h/late/3"] = Death(daemon.clock - 20, daemon.clock - 20, 0.0)
    # Told of before we began, as by the daemon before us.
    daemon.begin()
    daemon.go_on(STEP)
    facts = daemon.facts()
    assert [(one.src, one.state) for one in facts.sources] == [
        *(("h/quiet/1", "silent"), ("h/late/3", "dead"), ("h/well/2", "alive"))
    ]
    assert found_by(facts) == [("1 source is silent", True)]
    daemon.liveness.counted.add("deaths")
    daemon.collector.update_sources([(b"h/quiet/1", DEAD)])
    daemon.go_on(STEP)
    assert ("sources died", True) in found_by(daemon.facts())
    daemon.collector.update_sources((b"h/%d" % number, SILENT) for number in range(2 * MAX_SILENT))
    assert daemon.facts().more_sources == MAX_SILENT + len(daemon.liveness.dead) - MAX_ROWS


def test_a_missing_gateway_and_a_refused_reload_are_findings(daemon: Daemon) -> None:
    daemon.begin()
    daemon.links.expected = ["nng"]
    daemon.refused = "reload refused: x"
    assert found_by(daemon.facts()) == [("the last reload was refused", True)]
    daemon.started -= GATEWAY_START_TIME + 1
    assert found_by(daemon.facts()) == [("gateway nng is down", True), ("the last reload was refused", True)]


def test_channels_and_clients_come_by_their_load(daemon: Daemon) -> None:
    daemon.channels = [(b"quiet", 1, 0), (EVIL.replace(" ", "_").encode(), 50, 3)]
    for _ in range(MAX_ROWS + 5):
        daemon.hub.connect(b"x")
    worst = next(reversed(daemon.bus.clients.values()))
    worst.queue.put(b"MSG x\0waits")
    daemon.recent_lines = [LogLine(AT, 30, "kernel_drops", "a <b>", "raise it")] * (MAX_LINES + 1)
    daemon.begin()
    daemon.channels = [(b"c/%d" % number, 2, 1) for number in range(100)]
    daemon.go_on(STEP)
    facts = daemon.facts()
    assert (facts.channels[0].chan, facts.channels[0].messages) == (EVIL.replace(" ", "_"), 50)
    assert (len(facts.channels), facts.more_channels) == (MAX_CHANNELS, 102 - MAX_CHANNELS)
    assert (len(facts.clients), facts.now.bus.clients) == (MAX_ROWS, MAX_ROWS + 5)
    assert (facts.clients[0].identity, facts.clients[0].queued) == (worst.identity.decode(), 1)
    assert {tuple(one.patterns) for one in facts.clients} == {()}  # which some programs keep secret
    assert facts.now.bus.queue_bytes == facts.clients[0].queued_bytes > 0
    assert facts.events == [LogEvent(AT, "warning", "kernel_drops", "a <b>", "raise it")] * MAX_LINES


def test_many_requests_within_a_second_gather_once(daemon: Daemon) -> None:
    page = StatusPage(cast(DaemonState, daemon))
    page.collector.start()
    show = page.pages()["/status.json"]

    def accepted() -> int:
        return int(json.loads(finished(show(""))[2])["now"]["segments"][0]["verdicts"]["accepted"])

    assert accepted() == 0
    daemon.segments[0].counters.judged(ACCEPTED, 7)
    assert accepted() == 0
    daemon.clock += CACHE_TIME
    assert accepted() == 7


def test_pages_name_no_other_files(daemon: Daemon) -> None:
    pages = StatusPage(cast(DaemonState, daemon)).pages()
    html = finished(pages["/"](""))[2].decode()
    assert finished(pages["/fleet"](""))[2].decode() == html
    runbook = finished(pages["/runbook"](""))[2].decode()
    found = [*HtmlReader(html).found, *HtmlReader(runbook).found]
    addresses = [attributes.get(name) for _, attributes in found for name in ("src", "href")]
    for address in filter(None, addresses):
        assert address.startswith(("#", "data:")) or f"/{address}" in {*pages, "/metrics", "/healthz"}
    # Markup that got in would not run: of scripts only the page's own may, which its tests in a browser need.
    assert "unsafe" not in PAGE_POLICY


def test_looking_costs_no_more_however_many_sources_there_are(daemon: Daemon) -> None:
    def cost_with(low: int, high: int) -> float:
        for number in range(low, high):
            daemon.sources.judge_new(b"host/%d/program" % number, 1, daemon.clock)
        return min(repeat(daemon.facts, timer=time.thread_time, number=1, repeat=7))

    daemon.begin()
    few, many = cost_with(0, 5_000), cost_with(5_000, 60_000)
    assert many < 4 * few + 0.002, (few, many)
