"""Renders the status page as HTML.

Problems come first, no state is shown by colour alone, and all URLs are relative, so that the page works below any
path prefix.
"""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import Final

from bccnd.monitoring.html import (
    NOTHING,
    Markup,
    bad_count,
    count_text,
    data_table,
    definition,
    duration,
    element,
    figure_list,
    joined,
    more_rows,
    per_second,
    percent,
    rate_text,
    section,
    size_text,
    small_rate,
    time_element,
    time_with_age,
)
from bccnd.monitoring.status_findings import ATTENTION, OVER, WELL, summarize
from bccnd.monitoring.status_model import (
    Chart,
    ClientRow,
    DropRow,
    EventRow,
    Finding,
    GatewayRow,
    SegmentRow,
    SourceRow,
    Status,
)

_STATE_NAMES: Final = {WELL: "Well", OVER: "Well again", ATTENTION: "Attention"}
_STATE_SIGNS: Final = {WELL: "\u2713", OVER: "\u2713", ATTENTION: "!"}
#: the chart's height, in its own units; its width is the number of its values
_HIGH: Final = 40

_FILE: Final = Path(__file__).with_name("status.html")
#: the page without its data; lines are joined, so that white space between them is not shown
_PAGE: Final = Template("".join(line.strip() for line in _FILE.read_text("utf-8").splitlines()))

e = element


def render(status: Status) -> str:
    """Return the page."""
    sections = (
        _drops(status),
        _segments(status),
        _sources(status),
        _channels(status),
        _clients(status),
        _gateways(status),
        _events(status),
    )
    content = {
        "host": status.host,
        "state_name": _STATE_NAMES[status.state].lower(),
        "version": status.version,
        "running": duration(status.at - status.started),
        "started": time_element(status.started, status.at),
        "updated": time_element(status.at, status.at),
        "state": status.state,
        "sign": _STATE_SIGNS[status.state],
        "summary": [
            e("a", one.text, href=f"#{one.section}") if isinstance(one, Finding) else one
            for one in summarize(status.findings)
        ],
        "charts": [_chart(one) for one in status.charts],
        "sections": sections,
        "pid": status.pid,
    }
    return _PAGE.substitute({name: joined(value) for name, value in content.items()})


def _chart(chart: Chart) -> Markup:
    known = [value for value in chart.values if value is not None]
    most = max(known, default=0.0)
    rates = f"at most {rate_text(most)}, now {rate_text(chart.rate)}"
    label = f"{chart.title}, {chart.unit} a second over the last hour: {rates}"
    picture = e(
        "svg",
        e("path", d=_area(chart.values, most), class_="area"),
        viewBox=f"0 0 {len(chart.values)} {_HIGH}",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
    )
    return e(
        "figure",
        e(
            "figcaption",
            e("span", chart.title, class_="name"),
            e("strong", rate_text(chart.rate), e("small", "/s")),
            e("span", f"{count_text(chart.total)} {chart.unit} in all", class_="soft"),
        ),
        picture,
        e("p", e("span", "1 h ago"), e("span", f"at most {rate_text(most)}/s"), e("span", "now"), class_="axis"),
        class_=f"chart {chart.name}" + ("" if most else " none"),
    )


def _area(values: list[float | None], most: float) -> str:
    """Return the SVG path of a chart with one step per value."""
    parts: list[str] = []
    inside = False
    for x, value in enumerate(values):
        if value is None:
            parts.append(f"V{_HIGH}" if inside else "")
            inside = False
            continue
        high = round(_HIGH - (value / most * (_HIGH - 2) if most else 0), 1)
        # A small value stays visible.
        if value:
            high = min(high, _HIGH - 1.5)
        parts.append(f"{'' if inside else f'M{x} {_HIGH}'}V{high:g}H{x + 1}")
        inside = True
    return "".join(parts) + (f"V{_HIGH}" if inside else "") or f"M0 {_HIGH}"


# -- losses and drops


def _drops(status: Status) -> Markup:
    serious = [one for one in status.drops if one.serious]
    usual = [one for one in status.drops if not one.serious]
    cards = e("ol", [_card(one, status.at) for one in serious], class_="cards")
    nothing = e("p", "No losses and no unexpected drops.", class_="none")
    rows = [
        (
            _name(one),
            one.where or NOTHING,
            count_text(one.times),
            per_second(one.rate),
            time_element(one.last, status.at),
            one.means,
        )
        for one in usual
    ]
    table = data_table("Expected drops", ("Name", "~Where", "#Count", "#Now", "Last", "~Meaning"), rows)
    return section("drops", "Lost and dropped", cards if serious else nothing, table)


def _name(one: DropRow) -> Markup:
    return joined(e("code", one.name), e("small", one.kind, class_="soft") if one.kind else None)


def _card(one: DropRow, at: float) -> Markup:
    since = time_element(one.since, at) if one.since is not None else "before the first sample"
    status = [
        definition("Count", count_text(one.times)),
        definition("Rate now", per_second(one.rate)),
        definition("Since", since),
        definition("Last", time_with_age(one.last, at)),
    ]
    if one.first is not None and one.first != one.since:
        status.append(definition("First", time_element(one.first, at)))
    return e(
        "li",
        e(
            "h3",
            e("code", one.name),
            e("span", f" on {one.where}", class_="where") if one.where else None,
            e("span", "ongoing" if one.now else "over", class_="tag"),
        ),
        e("dl", status),
        e("p", one.means),
        e("p", e("strong", "What to do: "), one.remedy),
        e("p", e("code", one.metric), " \u00b7 runbook: ", e("code", f"docs/runbook.md#{one.name}"), class_="soft"),
        class_="now" if one.now else "past",
    )


# -- other sections


def _segments(status: Status) -> Markup:
    names = ("~Segment", "~Address", "~Interface", "#Received", "#Accepted", "#Not accepted", "#Kernel drops", "#Sent")
    rows = [_segment(one) for one in status.segments]
    hint = None
    if status.segments and not any(one.received for one in status.segments):
        hint = e("p", "No datagram received yet. Run bccn doctor to check reception.", class_="note")
    verdicts = data_table(
        "Datagrams by verdict",
        ("Verdict", "~Segment", "Delivered", "#Count", "#Share", "#Now"),
        [
            (
                e("code", one.name),
                one.segment,
                "yes" if one.accepted else "no",
                count_text(one.times),
                percent(one.share),
                per_second(one.rate),
            )
            for one in status.verdicts
        ],
    )
    counts = status.source_counts
    figures = figure_list(
        ("Missing now", count_text(counts.missing), "may still arrive"),
        ("Lost", count_text(counts.lost), "messages in all"),
        ("Delivered", count_text(status.deliveries), f"{rate_text(status.deliveries_rate)}/s to clients"),
        ("Published", count_text(status.published), f"{rate_text(status.published_rate)}/s by clients"),
    )
    return section("segments", "Segments", hint, figures, data_table("Segments and links", names, rows), verdicts)


def _segment(one: SegmentRow) -> tuple[object, ...]:
    failed = e("small", f"{count_text(one.send_errors)} failed", class_="bad") if one.send_errors else None
    return (
        one.name,
        one.address or "links",
        one.interface or NOTHING,
        joined(count_text(one.received), small_rate(one.received_rate)),
        joined(count_text(one.accepted), small_rate(one.accepted_rate)),
        joined(count_text(one.refused), small_rate(one.refused_rate)),
        bad_count(one.kernel_drops),
        joined(count_text(one.sent), small_rate(one.sent_rate), failed),
    )


def _sources(status: Status) -> Markup:
    counts = status.source_counts
    figures = figure_list(
        ("Tracked", count_text(counts.tracked), f"{count_text(counts.restarts)} restarts"),
        ("Active", count_text(counts.alive), f"within {counts.within:g} s"),
        ("Silent", count_text(counts.silent), "heartbeats missing"),
        ("Dead", count_text(counts.dead), "no heartbeats"),
    )
    table = data_table(
        "Sources: with losses, silent and dead ones first",
        ("~Source", "State", "Last datagram", "#Missing", "#Lost", "Last loss"),
        [_source(one, status.at) for one in status.sources],
        "No sources yet.",
    )
    return section("sources", "Sources", figures, table, more_rows(status.more_sources, "bccn sources"))


def _source(one: SourceRow, at: float) -> tuple[object, ...]:
    bad = one.state in ("silent", "dead")
    return (
        one.src,
        e("span", one.state, class_="bad" if bad else None),
        time_with_age(one.heard, at),
        count_text(one.missing),
        bad_count(one.lost),
        time_with_age(one.lost_last, at),
    )


def _channels(status: Status) -> Markup:
    table = data_table(
        "Channels with most messages within the last minute",
        ("~Channel", "#Messages/s", "#In the last minute", "#Receivers here"),
        [
            (one.chan, rate_text(one.rate), count_text(one.messages), count_text(one.receivers))
            for one in status.channels
        ],
        "No messages within the last minute.",
    )
    return section("channels", "Busiest channels", table, more_rows(status.more_channels, "bccn top"))


def _clients(status: Status) -> Markup:
    names = ("~Program", "~Identity", "#Queued", "#Queue", "#Lost", "#Published", "#Patterns", "Connected")
    rows = [_client(one, status.at) for one in status.clients]
    table = data_table("Clients: slowest first", names, rows, "No clients connected.")
    total = len(status.clients) + status.more_clients
    figures = figure_list(
        ("Connected", count_text(total), "on this host"),
        ("Queued", size_text(status.queue_bytes), "for slow clients"),
        ("Patterns", count_text(status.subscriptions), "subscribed to"),
    )
    return section("clients", "Clients", figures, table, more_rows(status.more_clients, "bccn clients"))


def _client(one: ClientRow, at: float) -> tuple[object, ...]:
    waiting = joined(count_text(one.queue_messages), e("small", size_text(one.queue_bytes)))
    full = f"{100 * one.fill:.0f} % full"
    return (
        joined(one.program, e("small", f"uid {one.uid}, pid {one.pid}", class_="soft")),
        one.identity,
        waiting,
        e("span", full, class_="bad" if one.fill >= 0.5 else None),
        bad_count(one.lost),
        count_text(one.published),
        count_text(one.subscriptions),
        time_element(one.since, at),
    )


def _gateways(status: Status) -> Markup | None:
    if not status.gateways:
        return None
    table = data_table(
        "Gateways",
        ("Gateway", "State", "#Peers", "#Received", "#Sent", "#Dropped", "#Connections", "#Starts"),
        [_gateway(one) for one in status.gateways],
    )
    peers = data_table(
        "Peers of gateways",
        ("Gateway", "~Peer", "~Name", "#Received", "#Sent", "#Dropped", "#Queued", "Connected"),
        [
            (
                one.gateway,
                one.peer,
                one.name or NOTHING,
                count_text(one.received),
                count_text(one.sent),
                count_text(one.dropped),
                size_text(one.queued),
                time_element(one.since, status.at),
            )
            for one in status.peers
        ],
    )
    return section("gateways", "Gateways", table, peers, more_rows(status.more_peers, "bccn gateways"))


def _gateway(one: GatewayRow) -> tuple[object, ...]:
    return (
        one.name,
        f"up, pid {one.pid}" if one.up else e("strong", "down", class_="bad"),
        *(count_text(number) for number in (one.peers, one.received, one.sent, one.dropped, one.connects, one.starts)),
    )


def _events(status: Status) -> Markup:
    table = data_table(
        "Last log lines, latest first",
        ("Time", "Level", "Event", "~Message"),
        [
            (
                time_element(one.when, status.at),
                e("span", one.level, class_="bad" if one.level in ("warning", "error") else None),
                e("code", one.event) if one.event else NOTHING,
                _event(one),
            )
            for one in status.events
        ],
        "No log lines yet.",
    )
    return section("events", "Recent events", table)


def _event(one: EventRow) -> Markup:
    return joined(one.text, e("small", f"What to do: {one.remedy}") if one.remedy else None)
