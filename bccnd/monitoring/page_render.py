"""The status page as HTML.

Law: one function makes the page of plain facts, and nothing else: no clock, no daemon. What is wrong stands before
what is not; no state is told by colour alone; every address is relative, so that the page works behind any prefix.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from bccnd.monitoring.html import Markup, element, joined
from bccnd.monitoring.page_data import (
    ATTENTION,
    OVER,
    WELL,
    Chart,
    Client,
    Dropped,
    Event,
    Facts,
    Finding,
    Gateway,
    Segment,
    Source,
    sentence,
)

#: seconds until a browser without the script asks again
AGAIN: Final = 10
_WORDS: Final = {WELL: "Well", OVER: "Well again", ATTENTION: "Attention"}
_SIGNS: Final = {WELL: "\u2713", OVER: "\u2713", ATTENTION: "!"}
#: the chart's height, in its own units; its width is the number of its values
_HIGH: Final = 40

#: where there is nothing to say
_NOTHING: Final = Markup("\u2013")
#: classes of columns
_KINDS: Final = {"#": "n", "~": "t"}

e = element


def render(facts: Facts) -> str:
    """The page."""
    title = f"{facts.host}: {_WORDS[facts.state].lower()}"
    head = e(
        "head",
        e("meta", charset="utf-8"),
        e("meta", name="viewport", content="width=device-width, initial-scale=1"),
        e("meta", name="color-scheme", content="light dark"),
        e("title", f"{title} \u2013 bccnd", id="title"),
        e("link", rel="icon", type="image/svg+xml", href="status.svg"),
        e("link", rel="stylesheet", href="status.css"),
        e("noscript", e("meta", http_equiv="refresh", content=AGAIN)),
        e("script", src="status.js", defer=True),
    )
    sections = (
        _drops(facts),
        _segments(facts),
        _sources(facts),
        _channels(facts),
        _clients(facts),
        _gateways(facts),
        _events(facts),
    )
    body = e(
        "body",
        e("a", "Skip to what is lost", href="#drops", class_="skip"),
        _gone(),
        _header(facts),
        e("main", _state(facts), _charts(facts), *sections),
        _footer(facts),
    )
    return f"<!doctype html>{e('html', head, body, lang='en')}"


# -- the top


def _gone() -> Markup:
    """What the script shows when there is nobody who would answer."""
    return e(
        "div",
        e("strong", "Not updated since ", e("time", id="gone-since"), ": the daemon does not answer."),
        " What follows is how it was then. On its host, systemctl status bccnd says more.",
        id="gone",
        role="alert",
        hidden=True,
    )


def _header(facts: Facts) -> Markup:
    return e(
        "header",
        e("h1", "bccnd"),
        e("p", facts.host, class_="host"),
        e(
            "dl",
            _pair("Version", facts.version),
            _pair("Running for", _span(facts.at - facts.started)),
            _pair("Since", _time(facts.started, facts.at)),
            _pair("Updated", e("span", _time(facts.at, facts.at), " ", e("span", "UTC", class_="zone"))),
            class_="about",
        ),
        e("button", "Pause", type="button", id="pause", aria_pressed="false", hidden=True),
        id="header",
    )


def _state(facts: Facts) -> Markup:
    said = [
        e("a", one.text, href=f"#{one.section}") if isinstance(one, Finding) else one
        for one in sentence(facts.findings)
    ]
    return e(
        "section",
        e("h2", "State", class_="unseen", id="state-title"),
        e(
            "p",
            e("span", _SIGNS[facts.state], class_="sign", aria_hidden="true"),
            e("span", said, role="status", aria_live="polite", id="sentence"),
            class_="sentence",
        ),
        id="state",
        class_=f"state {facts.state}",
        aria_labelledby="state-title",
    )


def _charts(facts: Facts) -> Markup:
    return e(
        "section",
        e("h2", "The last hour", id="hour-title"),
        e("div", [_chart(one) for one in facts.charts], class_="charts"),
        id="hour",
        aria_labelledby="hour-title",
    )


def _chart(chart: Chart) -> Markup:
    known = [value for value in chart.values if value is not None]
    most = max(known, default=0.0)
    label = f"{chart.title}, {chart.unit} a second over the last hour: at most {_rate(most)}, now {_rate(chart.rate)}"
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
            e("strong", _rate(chart.rate), e("small", "/s")),
            e("span", f"{_number(chart.total)} {chart.unit} in all", class_="soft"),
        ),
        picture,
        e("p", e("span", "1 h ago"), e("span", f"at most {_rate(most)}/s"), e("span", "now"), class_="axis"),
        class_=f"chart {chart.name}" + ("" if most else " none"),
    )


def _area(values: list[float | None], most: float) -> str:
    """The outline of a chart with a step for each value."""
    parts: list[str] = []
    inside = False
    for place, value in enumerate(values):
        if value is None:
            parts.append(f"V{_HIGH}" if inside else "")
            inside = False
            continue
        high = round(_HIGH - (value / most * (_HIGH - 2) if most else 0), 1)
        # What is there can be seen, however little it is beside the rest.
        if value:
            high = min(high, _HIGH - 1.5)
        parts.append(f"{'' if inside else f'M{place} {_HIGH}'}V{high:g}H{place + 1}")
        inside = True
    return "".join(parts) + (f"V{_HIGH}" if inside else "") or f"M0 {_HIGH}"


# -- what is lost


def _drops(facts: Facts) -> Markup:
    serious = [one for one in facts.drops if one.serious]
    usual = [one for one in facts.drops if not one.serious]
    cards = e("ol", [_card(one, facts.at) for one in serious], class_="cards")
    nothing = e("p", "Nothing is lost, and nothing was dropped that should not be.", class_="none")
    rows = [
        (
            _name(one),
            one.where or _NOTHING,
            _count(one.times),
            _per_second(one.rate),
            _time(one.last, facts.at),
            one.means,
        )
        for one in usual
    ]
    table = _table(
        "Also dropped, as it should be",
        ("Name", "~Where", "#Count", "#Now", "Last", "~What it means"),
        rows,
    )
    return _section("drops", "Lost and dropped", cards if serious else nothing, table if usual else None)


def _name(one: Dropped) -> Markup:
    return joined(e("code", one.name), e("small", one.kind, class_="soft") if one.kind else None)


def _card(one: Dropped, at: float) -> Markup:
    since = _time(one.since, at) if one.since is not None else "at the start, or before"
    facts = [
        _pair("Count", _count(one.times)),
        _pair("Rate now", _per_second(one.rate)),
        _pair("Since", since),
        _pair("Last", joined(_time(one.last, at), _ago(one.last, at))),
    ]
    if one.first is not None and one.first != one.since:
        facts.append(_pair("First", _time(one.first, at)))
    return e(
        "li",
        e(
            "h3",
            e("code", one.name),
            e("span", f" on {one.where}", class_="where") if one.where else None,
            e("span", "going on" if one.now else "over", class_="tag"),
        ),
        e("dl", facts),
        e("p", one.means),
        e("p", e("strong", "What to do: "), one.remedy),
        e("p", e("code", one.metric), " \u00b7 runbook: ", e("code", f"docs/runbook.md#{one.name}"), class_="soft"),
        class_="now" if one.now else "past",
    )


# -- the rest


def _segments(facts: Facts) -> Markup:
    names = ("~Segment", "~Address", "~Interface", "#Received", "#Accepted", "#Not accepted", "#Kernel drops", "#Sent")
    rows = [_segment(one) for one in facts.segments]
    hint = None
    if facts.segments and not any(one.received for one in facts.segments):
        hint = e("p", "No datagram has come in since the start. bccn doctor says whether any could.", class_="note")
    verdicts = _table(
        "Datagrams by verdict",
        ("Verdict", "~Segment", "Delivered", "#Count", "#Share", "#Now"),
        [
            (
                e("code", one.name),
                one.segment,
                "yes" if one.accepted else "no",
                _count(one.times),
                _percent(one.share),
                _per_second(one.rate),
            )
            for one in facts.verdicts
        ],
    )
    counts = facts.source_counts
    figures = _figures(
        ("Missing now", _number(counts.missing), "may still arrive"),
        ("Lost", _number(counts.lost), "messages, since the start"),
        ("Delivered", _number(facts.deliveries), f"{_rate(facts.deliveries_rate)}/s to programs here"),
        ("Published", _number(facts.published), f"{_rate(facts.published_rate)}/s by programs here"),
    )
    return _section(
        "segments",
        "Segments",
        hint,
        figures,
        _table("Segments, and links", names, rows),
        verdicts if facts.verdicts else None,
    )


def _segment(one: Segment) -> tuple[object, ...]:
    failed = e("small", f"{_number(one.send_errors)} failed", class_="bad") if one.send_errors else None
    kernel = e("strong", _count(one.kernel_drops), class_="bad") if one.kernel_drops else _count(0)
    return (
        one.name,
        one.address or "by links",
        one.interface or _NOTHING,
        joined(_count(one.received), _small_rate(one.received_rate)),
        joined(_count(one.accepted), _small_rate(one.accepted_rate)),
        joined(_count(one.refused), _small_rate(one.refused_rate)),
        kernel,
        joined(_count(one.sent), _small_rate(one.sent_rate), failed),
    )


def _sources(facts: Facts) -> Markup:
    counts = facts.source_counts
    figures = _figures(
        ("Known", _number(counts.tracked), f"{_number(counts.restarts)} restarts seen"),
        ("Heard lately", _number(counts.alive), f"within {counts.within:g} s"),
        ("Silent", _number(counts.silent), "heartbeats are missing"),
        ("Dead", _number(counts.dead), "for want of heartbeats"),
    )
    table = _table(
        "Sources: those with losses, the silent and the dead first",
        ("~Source", "State", "Last heard", "#Missing", "#Lost", "Lost last"),
        [_source(one, facts.at) for one in facts.sources],
    )
    return _section(
        "sources",
        "Sources",
        figures,
        table if facts.sources else e("p", "Nobody was heard yet.", class_="none"),
        _more(facts.more_sources, "bccn sources"),
    )


def _source(one: Source, at: float) -> tuple[object, ...]:
    bad = one.state in ("silent", "dead")
    return (
        one.src,
        e("span", one.state, class_="bad" if bad else None),
        joined(_time(one.heard, at), _ago(one.heard, at)),
        _count(one.missing),
        e("strong", _count(one.lost), class_="bad") if one.lost else _count(0),
        joined(_time(one.lost_last, at), _ago(one.lost_last, at)),
    )


def _channels(facts: Facts) -> Markup:
    table = _table(
        "Channels that carried most within the last minute",
        ("~Channel", "#Messages a second", "#In the last minute", "#Receivers here"),
        [(one.chan, _rate(one.rate), _count(one.messages), _count(one.receivers)) for one in facts.channels],
    )
    return _section(
        "channels",
        "Busiest channels",
        table if facts.channels else e("p", "Nothing was said within the last minute.", class_="none"),
        _more(facts.more_channels, "bccn top"),
    )


def _clients(facts: Facts) -> Markup:
    names = ("~Program", "~Identity", "#Waiting", "#Queue", "#Lost", "#Published", "#Patterns", "Connected")
    table = _table("Programs: the slowest first", names, [_client(one, facts.at) for one in facts.clients])
    total = len(facts.clients) + facts.more_clients
    figures = _figures(
        ("Connected", _number(total), "programs of this host"),
        ("Waiting", _size(facts.queue_bytes), "for those who do not read"),
        ("Patterns", _number(facts.subscriptions), "subscribed to"),
    )
    return _section(
        "clients",
        "Programs of this host",
        figures,
        table if facts.clients else e("p", "Nobody is connected.", class_="none"),
        _more(facts.more_clients, "bccn clients"),
    )


def _client(one: Client, at: float) -> tuple[object, ...]:
    waiting = joined(_count(one.queue_messages), e("small", _size(one.queue_bytes)))
    full = f"{100 * one.fill:.0f} % full"
    return (
        joined(one.program, e("small", f"uid {one.uid}, pid {one.pid}", class_="soft")),
        one.identity,
        waiting,
        e("span", full, class_="bad" if one.fill >= 0.5 else None),
        e("strong", _count(one.lost), class_="bad") if one.lost else _count(0),
        _count(one.published),
        _count(one.subscriptions),
        _time(one.since, at),
    )


def _gateways(facts: Facts) -> Markup | None:
    if not facts.gateways:
        return None
    table = _table(
        "Gateways",
        ("Gateway", "State", "#Peers", "#Received", "#Sent", "#Dropped", "#Connections made", "#Starts"),
        [_gateway(one) for one in facts.gateways],
    )
    peers = _table(
        "Their peers",
        ("Gateway", "~Peer", "~Name", "#Received", "#Sent", "#Dropped", "#Waiting", "Connected"),
        [
            (
                one.gateway,
                one.peer,
                one.name or _NOTHING,
                _count(one.received),
                _count(one.sent),
                _count(one.dropped),
                _size(one.queued),
                _time(one.since, facts.at),
            )
            for one in facts.peers
        ],
    )
    return _section(
        "gateways",
        "Gateways",
        table,
        peers if facts.peers else None,
        _more(facts.more_peers, "bccn gateways"),
    )


def _gateway(one: Gateway) -> tuple[object, ...]:
    return (
        one.name,
        f"up, pid {one.pid}" if one.up else e("strong", "not there", class_="bad"),
        *(_count(number) for number in (one.peers, one.received, one.sent, one.dropped, one.connects, one.starts)),
    )


def _events(facts: Facts) -> Markup:
    if not facts.events:
        return _section("events", "Recent events", e("p", "Nothing was said yet.", class_="none"))
    table = _table(
        "The last lines of the log, the latest first",
        ("Time", "Level", "Event", "~What"),
        [
            (
                _time(one.when, facts.at),
                e("span", one.level, class_="bad" if one.level in ("warning", "error") else None),
                e("code", one.event) if one.event else _NOTHING,
                _event(one),
            )
            for one in facts.events
        ],
    )
    return _section("events", "Recent events", table)


def _event(one: Event) -> Markup:
    return joined(one.text, e("small", f"What to do: {one.remedy}") if one.remedy else None)


def _footer(facts: Facts) -> Markup:
    return e(
        "footer",
        e(
            "p",
            "For programs: ",
            e("a", "status.json", href="status.json"),
            ", ",
            e("a", "metrics", href="metrics"),
            ", ",
            e("a", "healthz", href="healthz"),
            f". Counts are since this daemon (pid {facts.pid}) began; rates are over the last ten seconds.",
        ),
        id="footer",
    )


# -- the parts


def _section(name: str, title: str, *content: object) -> Markup:
    heading = e("h2", title, id=f"{name}-title")
    return e("section", heading, *content, id=name, aria_labelledby=f"{name}-title", tabindex="-1")


def _table(caption: str, names: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> Markup:
    """A table, whose first column says what a row is about; names with ``#`` before them are of numbers, with ``~`` of
    what may be long. The roles say again what it is, because on a small screen it is laid out otherwise."""
    plain = [(name.lstrip("#~"), _KINDS.get(name[0])) for name in names]
    head = [e("th", name, scope="col", class_=kind, role="columnheader") for name, kind in plain]
    body = []
    for row in rows:
        cells = [e("th", row[0], scope="row", role="rowheader", class_=plain[0][1])]
        for value, (name, kind) in zip(row[1:], plain[1:], strict=True):
            kinds = " ".join([*([kind] if kind else []), *(["nil"] if value == _NOTHING else [])])
            cells.append(e("td", e("span", value), class_=kinds or None, role="cell", data_name=name))
        body.append(e("tr", cells, role="row"))
    return e(
        "table",
        e("caption", caption),
        e("thead", e("tr", head, role="row"), role="rowgroup"),
        e("tbody", body, role="rowgroup"),
        role="table",
    )


def _figures(*figures: tuple[str, str, str]) -> Markup:
    return e("dl", [_pair(name, joined(value, e("small", more))) for name, value, more in figures], class_="figures")


def _pair(name: str, value: object) -> Markup:
    return e("div", e("dt", name), e("dd", value))


def _more(number: int, command: str) -> Markup | None:
    return e("p", f"And {_number(number)} more: ", e("code", command), class_="soft") if number > 0 else None


def _number(count: int) -> str:
    return f"{count:,}"


_count = _number


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share >= 0.001 else "<0.1 %"


def _rate(rate: float) -> str:
    """A rate in as many digits as mean something; a little is never nothing."""
    if rate <= 0.0:
        return "0"
    return f"{rate:,.0f}" if rate >= 10.0 else f"{rate:.1f}" if rate >= 0.1 else "<0.1"


def _per_second(rate: float) -> str:
    return f"{_rate(rate)}/s"


def _small_rate(rate: float) -> Markup:
    return e("small", _per_second(rate))


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}"
        size /= 1024
    return f"{size:,.1f} GiB"


def _span(seconds: float) -> str:
    """A length of time in its two largest parts."""
    rest = max(0, int(seconds))
    parts: list[str] = []
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        number, rest = divmod(rest, length)
        if number or (parts and len(parts) < 2) or unit == "s":
            parts.append(f"{number} {unit}")
    return " ".join(parts[:2])


def _time(when: float | None, at: float) -> Markup:
    """A moment, for people in UTC; the script says it in local time."""
    if when is None:
        return _NOTHING
    moment = datetime.fromtimestamp(when, UTC)
    text = f"{moment:%H:%M:%S}" if at - when < 64_800 else f"{moment:%Y-%m-%d %H:%M}"
    return e("time", text, datetime=f"{moment:%Y-%m-%dT%H:%M:%SZ}")


def _ago(when: float | None, at: float) -> Markup | None:
    return None if when is None else e("span", f" {_span(at - when)} ago", class_="ago")
