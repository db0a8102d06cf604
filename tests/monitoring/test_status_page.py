"""The status page: hostile names cannot change its elements, problems come first, and its cost is bounded."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from timeit import repeat
from typing import Any, cast, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.observing.counter_history import STEP
from bccnd.core.observing.counters import DROP_REASONS
from bccnd.core.tracking.liveness import DEAD, SILENT, Death
from bccnd.core.tracking.losses import MAX_LOST_BY_SOURCE
from bccnd.core.wire.verdicts import ACCEPTED, DUPLICATE, INTEGRITY_FAILED
from bccnd.drops.catalog import DROPS
from bccnd.log.handlers import LogLine
from bccnd.monitoring.daemon_state import DaemonState
from bccnd.monitoring.html import Markup, element
from bccnd.monitoring.status_collector import MAX_CHANNELS, MAX_LINES, MAX_ROWS, MAX_SILENT
from bccnd.monitoring.status_findings import (
    ATTENTION,
    GATEWAY_START_TIME,
    MAX_NAMED,
    ONGOING,
    OVER,
    RECENT,
    WELL,
    state_of,
    summarize,
)
from bccnd.monitoring.status_html import render
from bccnd.monitoring.status_model import Chart, DropRow, EventRow, Finding, Status, to_json
from bccnd.monitoring.status_page import CACHE_TIME, StatusPage
from tests.html_reader import HtmlReader
from tests.monitoring.pages import Daemon, finished, open_segment
from tests.rules import bus_limits
from tests.support import Hub

AT = 1_795_000_000.0
EVIL = "<img src=x onerror=alert(1)>\"'&</td></table><script>alert(2)</script>"


def filled(kind: Any, text: str) -> Any:
    """A value of a type of the model: each text in it is that text, each number is 1, and each list has one entry."""
    if hasattr(kind, "_fields"):
        return kind(*(filled(each, text) for each in get_type_hints(kind).values()))
    if get_origin(kind) is list:
        return [filled(get_args(kind)[0], text)]
    if kind == float | None:
        return 1.0
    return text if kind is str else kind(1)


def full(text: str) -> Status:
    """A status in which every text that comes from elsewhere is that text."""
    status: Status = filled(Status, text)
    return status._replace(
        at=AT,
        state=ATTENTION,
        findings=[Finding(text, "drops", True), Finding(text, "sources", False)],
        charts=[Chart("accepted", "Accepted", "datagrams", 9, 1.5, [None, 0.0, 3.0, None, 1.0])],
        drops=[status.drops[0]._replace(serious=serious, now=serious) for serious in (True, False)],
    )


HARMLESS = HtmlReader(render(full("x"))).elements


@given(st.one_of(st.text(min_size=1), st.text("<>&\"'/=! -[]?\n\0", min_size=1), st.just(EVIL)))
def test_no_text_makes_an_element_or_an_attribute(text: str) -> None:
    assert HtmlReader(render(full(text))).elements == HARMLESS


def test_a_hostile_text_can_be_read_and_would_be_noticed_as_markup() -> None:
    assert HtmlReader(render(full(Markup(EVIL)))).elements != HARMLESS
    assert HtmlReader(render(full(EVIL))).text.count(EVIL) > 20
    facts = full(EVIL)
    data = json.loads(json.dumps(to_json(facts)))
    assert set(data) == set(Status._fields)
    assert data["sources"][0] == facts.sources[0]._asdict()
    assert data["source_counts"]["silent"] == 1


@pytest.mark.parametrize("facts", [full("x"), full("x")._replace(state=WELL, findings=[], drops=[], gateways=[])])
def test_the_page_is_accessible(facts: Status) -> None:
    found = HtmlReader(render(facts)).found
    by_tag: dict[str, list[dict[str, str]]] = {}
    for tag, attributes in found:
        by_tag.setdefault(tag, []).append(attributes)
    assert all(len(by_tag[tag]) == 1 for tag in ("h1", "main", "header", "footer", "title"))
    assert len(by_tag["caption"]) == len(by_tag["table"])
    assert all(one["scope"] in ("col", "row") for one in by_tag["th"])
    assert all(one["aria-label"] for one in by_tag["svg"])
    ids = [attributes["id"] for _, attributes in found if "id" in attributes]
    assert len(ids) == len(set(ids))
    for one in by_tag["a"]:
        assert not one["href"].startswith("#") or one["href"][1:] in ids
    assert [one for one in by_tag["section"] if one["aria-labelledby"] not in ids] == []
    live = [attributes for _, attributes in found if "aria-live" in attributes]
    assert [(one["id"], one["aria-live"]) for one in live] == [("sentence", "polite")]


def chosen(selector: str, parents: tuple[tuple[str, str], ...]) -> bool:
    """Whether one of these elements is what a selector such as ``header .host`` names."""
    rest = iter(parents)
    return all(
        any(f".{name}" == part or tag == part for tag, name in rest)
        for part in re.sub(r"\s*>\s*", " ", selector).split()
    )


def test_the_script_updates_everything_that_a_restart_changes() -> None:
    folder = resources.files("bccnd.monitoring")
    script = folder.joinpath("status.js").read_text()
    (listed,) = re.findall(r"const UPDATED = \[(.*?)\]", script)
    updated = ["title", "main > section", *re.findall(r'"(.*?)"', listed)]
    changing = [one for one in HtmlReader(folder.joinpath("status.html").read_text()).texts if "$" in one[0]]
    assert len(changing) > 5
    for text, parents in changing:
        if text.strip() != "$sections":
            assert any(chosen(selector, parents) for selector in updated), text


def test_nothing_in_the_page_is_forbidden_by_its_policy_and_no_address_leaves_its_place() -> None:
    for tag, attributes in HtmlReader(render(full(EVIL))).found:
        assert not [name for name in attributes if name == "style" or name.startswith("on")]
        assert tag != "style"
        for name in ("href", "src"):
            address = attributes.get(name, "status")
            assert address.startswith(("#", "fleet", "status", "metrics", "healthz")), address
        if tag == "script":
            assert attributes == {"src": "status.js", "defer": ""}


def summary_of(findings: list[Finding]) -> str:
    return "".join(one if isinstance(one, str) else one.text for one in summarize(findings))


@pytest.mark.parametrize(
    ("findings", "state", "sentence"),
    [
        ([], WELL, "All is well."),
        ([("a", False)], OVER, "All is well now. Within the last hour: a."),
        ([("a", True), ("b", False)], ATTENTION, "1 thing needs attention: a. Within the last hour also: b."),
        (
            [(str(number), True) for number in range(MAX_NAMED + 2)],
            ATTENTION,
            f"{MAX_NAMED + 2} things need attention: 0, 1, 2, 3, 4, 5 and 2 more.",
        ),
    ],
)
def test_the_summary_is_one_sentence(findings: list[tuple[str, bool]], state: str, sentence: str) -> None:
    found = [Finding(text, "drops", now) for text, now in findings]
    assert state_of(found) == state
    assert summary_of(found) == sentence


def test_a_drop_is_shown_with_its_times_place_and_remedy() -> None:
    one = DropRow("lost", "", "m", "here", 1234, 5.6, AT - 700, AT - 65, AT - 3, True, True, "Gone.", "Look.")
    text = HtmlReader(render(full("x")._replace(drops=[one]))).text
    for part in ("lost on here", "ongoing", "1,234", "5.6/s", "3 s ago", "Gone.", "What to do: Look.", "#lost"):
        assert part in text
    past = HtmlReader(render(full("x")._replace(drops=[one._replace(now=False, since=None, first=None)]))).text
    assert "over" in past
    assert "before the first sample" in past


def test_attributes_are_escaped_and_left_out_without_a_value() -> None:
    assert element("p", "a<b", title='"', class_="c", lang=None) == '<p title="&quot;" class="c">a&lt;b</p>'


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with Hub(tmp_path, limits=bus_limits(max_clients=50)) as hub:
        segment = open_segment("here")
        yield Daemon(hub, segment)
        segment.close()


def test_a_daemon_to_which_nothing_has_happened_is_well(daemon: Daemon) -> None:
    daemon.begin()
    facts = daemon.facts()
    assert (facts.state, facts.findings) == (WELL, [])
    # What was counted before is shown, and needs no attention now.
    assert [one.name for one in facts.drops if one.now or one.since] == []
    assert facts.host == "relay<01>"
    daemon.segments[0].counters.judged(DUPLICATE, 5)
    daemon.go_on(STEP)
    assert daemon.facts().state == WELL
    assert not daemon.drop("duplicate").serious


def test_the_first_view_shows_what_has_happened_since_the_start(daemon: Daemon) -> None:
    daemon.begin()
    daemon.clock += 1.0
    daemon.channels = [(b"demo/1", 100, 1)]
    daemon.segments[0].counters.judged(INTEGRITY_FAILED, 7)
    for _ in range(2):
        facts = daemon.facts()
        assert [(one.chan, one.messages, one.receivers) for one in facts.channels] == [("demo/1", 100, 1)]
        assert summary_of(facts.findings) == "1 thing needs attention: integrity_failed."
        assert "within the last minute." not in HtmlReader(render(facts)).text
        daemon.clock += 1.0
    assert daemon.drop("integrity_failed").rate == pytest.approx(7 / 3)


def test_a_drop_is_shown_with_rate_and_times_until_it_is_long_over(daemon: Daemon) -> None:
    began = time.time()
    daemon.begin()
    daemon.go_on(60)
    counters = daemon.segments[0].counters
    for _ in range(4):
        counters.judged(INTEGRITY_FAILED, 10)
        daemon.go_on(STEP)
    one = daemon.drop("integrity_failed")
    wall = time.time()
    slack = 1 + wall - began
    assert (one.times, one.where, one.serious, one.now) == (40, "here", True, True)
    assert one.rate == pytest.approx(2.0)
    assert one.since == one.first == pytest.approx(wall - 3 * STEP, abs=slack)
    assert one.last == pytest.approx(wall, abs=slack)
    assert one.metric == 'bccnd_datagrams_total{verdict="integrity_failed"}'
    assert summary_of(daemon.facts().findings) == "1 thing needs attention: integrity_failed."
    daemon.go_on(ONGOING + STEP)
    assert daemon.drop("integrity_failed").rate == 0.0
    assert summary_of(daemon.facts().findings) == "All is well now. Within the last hour: integrity_failed."
    daemon.go_on(RECENT)
    assert daemon.facts().state == WELL
    assert daemon.drop("integrity_failed").times == 40


def test_every_drop_has_its_place_on_the_page(daemon: Daemon) -> None:
    daemon.begin()
    for reason in DROP_REASONS:
        daemon.bus.counters.dropped.add(reason)
    daemon.repeater.dropped += 1
    daemon.go_on(STEP)
    text = render(daemon.facts())
    shown = {one.name for one in daemon.facts().drops}
    assert shown >= {*DROP_REASONS, "copies_dropped"}
    assert shown - {"messages_lost"} <= {one.name for one in DROPS}
    for name in shown:
        assert f"<code>{name}</code>" in text


def test_what_the_network_has_lost_is_shown_by_source(daemon: Daemon) -> None:
    began = time.time()
    daemon.begin()
    sources = daemon.sources
    for src, seqs in ((b"h/bad/1", (1, 5)), (b"h/worse/2", (1, 50)), (b"h/good/3", (1, 2))):
        for seq in seqs:
            if sources.judge(src, seq, daemon.clock) < 0:
                sources.judge_new(src, seq, daemon.clock)
    assert daemon.facts().source_counts.missing == 51
    sources.sweep(daemon.clock + 3)
    daemon.go_on(STEP)
    facts = daemon.facts()
    assert [(one.src, one.lost) for one in facts.sources] == [("h/worse/2", 48), ("h/bad/1", 3), ("h/good/3", 0)]
    assert facts.sources[0].lost_last == pytest.approx(time.time(), abs=1 + time.time() - began)
    assert daemon.drop("messages_lost").times == facts.source_counts.lost == 51
    assert summary_of(facts.findings) == "1 thing needs attention: messages_lost."


def test_the_silent_and_the_dead_are_named(daemon: Daemon) -> None:
    for src in (b"h/quiet/1", b"h/well/2"):
        daemon.sources.judge_new(src, 1, daemon.clock)
        daemon.liveness.on_heartbeat(src, daemon.clock)
    daemon.liveness.dead[b"h/late/3"] = Death(daemon.clock - 20, daemon.clock - 20, 0.0)
    source = daemon.sources.get(b"h/quiet/1")
    assert source is not None
    daemon.liveness._change(source, SILENT)
    # Told of before we began, as by the daemon before us.
    daemon.begin()
    daemon.go_on(STEP)
    facts = daemon.facts()
    assert [(one.src, one.state) for one in facts.sources] == [
        *(("h/quiet/1", "silent"), ("h/late/3", "dead"), ("h/well/2", "alive"))
    ]
    assert summary_of(facts.findings) == "1 thing needs attention: 1 source is silent."
    daemon.liveness.counted.add("deaths")
    daemon.collector.update_sources([(b"h/quiet/1", DEAD)])
    daemon.go_on(STEP)
    assert "sources died" in summary_of(daemon.facts().findings)
    daemon.collector.update_sources((b"h/%d" % number, SILENT) for number in range(2 * MAX_SILENT))
    assert len(daemon.collector._silent) == MAX_SILENT


def test_a_missing_gateway_and_a_refused_reload_are_findings(daemon: Daemon) -> None:
    daemon.begin()
    daemon.links.expected = ["nng"]
    daemon.refused = "reload refused: x"
    assert summary_of(daemon.facts().findings) == "1 thing needs attention: the last reload was refused."
    daemon.started -= GATEWAY_START_TIME + 1
    assert summary_of(daemon.facts().findings) == (
        "2 things need attention: gateway nng is down, the last reload was refused."
    )
    assert "down" in render(daemon.facts())


def test_channels_and_clients_come_by_their_load_and_the_last_lines_of_the_log_are_there(daemon: Daemon) -> None:
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
    assert facts.channels[0][::2] == (EVIL.replace(" ", "_"), 50)
    assert (len(facts.channels), facts.more_channels) == (MAX_CHANNELS, 102 - MAX_CHANNELS)
    assert (len(facts.clients), facts.more_clients) == (MAX_ROWS, 5)
    assert (facts.clients[0].identity, facts.clients[0].queue_messages) == (worst.identity.decode(), 1)
    assert facts.queue_bytes == facts.clients[0].queue_bytes > 0
    assert facts.events == [EventRow(AT, "warning", "kernel_drops", "a <b>", "raise it")] * MAX_LINES


def test_many_requests_within_a_second_gather_once(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    page = StatusPage(cast(DaemonState, daemon))
    page.collector.start()
    pages = page.pages()

    def text(path: str) -> bytes:
        return finished(pages[path](""))[2]

    first = text("/")
    assert text("/") is first
    data = json.loads(text("/status.json"))
    assert data["segments"][0]["accepted"] == 0
    daemon.segments[0].counters.judged(ACCEPTED, 7)
    assert json.loads(text("/status.json")) == data
    daemon.clock += CACHE_TIME
    assert json.loads(text("/status.json"))["segments"][0]["accepted"] == 7
    assert text("/") is not first


def test_looking_costs_no_more_however_many_sources_there_are(daemon: Daemon) -> None:
    def add_sources(low: int, high: int) -> None:
        for number in range(low, high):
            daemon.sources.judge_new(b"host/%d/program" % number, 1, daemon.clock)

    add_sources(0, 5_000)
    for number in range(2 * MAX_LOST_BY_SOURCE):
        daemon.sources.losses.by_src[b"host/%d/program" % number] = number + 1
    daemon.collector.update_sources((b"host/%d/program" % (number + 1000), SILENT) for number in range(MAX_SILENT))
    daemon.begin()
    few = min(repeat(daemon.facts, timer=time.thread_time, number=1, repeat=7))
    add_sources(5_000, 60_000)
    many = min(repeat(daemon.facts, timer=time.thread_time, number=1, repeat=7))
    assert many < 4 * few + 0.002, (few, many)
