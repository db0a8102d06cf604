"""Facts and findings -> the page, as one text.

Law: whatever came from the network or from a file is escaped here and nowhere else goes into the page; nothing in it is
fetched and nothing runs. Every chart has its figures beside it as a table.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Final

from bccnd.pipeline.report import charts, words
from bccnd.pipeline.report.charts import Bar
from bccnd.pipeline.report.facts import Delivery, Facts
from bccnd.pipeline.report.finding import LOOK, NOTE, URGENT, Finding
from bccnd.pipeline.report.findings import health
from bccnd.pipeline.report.style import STYLE

#: forbids whatever could be fetched or run, also what a mistake here would let in
POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
#: rows of a table; the rest is in the tables themselves
ROWS: Final = 200
#: rows of a table on paper; the style counts them
PRINTED: Final = 30
#: findings told one by one
FINDINGS: Final = 30

_TAGS: Final = {
    URGENT: "\N{BLACK UP-POINTING TRIANGLE} Urgent",
    LOOK: "\N{BLACK CIRCLE} Look",
    NOTE: "\N{WHITE CIRCLE} Good to know",
}
_SIGNS: Final = {
    URGENT: "\N{BLACK UP-POINTING TRIANGLE}",
    LOOK: "\N{BLACK CIRCLE}",
    NOTE: "\N{WHITE CIRCLE}",
    3: "\N{CHECK MARK}",
}
#: refused why, in words
_REASONS: Final = {
    "integrity_failed": "wrong signature",
    "integrity_missing": "no signature",
    "integrity_unknown": "signature that cannot be checked",
    "replayed": "sent before",
    "oversize": "too long",
    "bad_envelope": "no datagram of this protocol",
    "length_mismatch": "length does not fit",
    "unsupported_version": "another version",
    "bad_body": "body cannot be read",
    "bad_src": "bad name of a sender",
    "bad_seq": "bad number",
    "bad_channel": "bad channel",
    "bad_target": "bad target",
    "internal_error": "met a bug",
}
_CAUSES: Final = {
    "restart": "began anew",
    "masked": "began anew, unnoticed by the daemons",
    "jump": "its numbers leapt forward",
}


def page(facts: Facts, found: Sequence[Finding], title: str = "") -> str:
    """The whole page."""
    name = title or "How the messages of the fleet arrived"
    parts = [
        _head(facts, found, name),
        _first(found),
        _matrix(facts),
        _courses(facts),
        _events(facts),
        _sets(facts),
        _channels(facts),
        _refusals(facts),
        _clocks(facts),
        _foot(facts),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>{_text(name)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{''.join(parts)}</body>\n</html>\n"
    )


def _text(text: str) -> str:
    """Text as text, whoever chose it."""
    return html.escape(words.plain(text))


# -- parts of a page


def _section(anchor: str, title: str, lead: str, *body: str) -> str:
    inner = "".join(body)
    head = f'<section id="{anchor}" aria-label="{_text(title)}">\n<h2>{_text(title)}</h2>\n'
    return f"{head}<p>{_text(lead)}</p>\n{inner}</section>\n"


def _chart(drawn: str | None, kind: str = "narrow") -> str:
    return f'<div class="chart {kind}">{drawn}</div>\n' if drawn else ""


def _table(
    summary: str, heads: Sequence[str], rows: Sequence[Sequence[str]], more: int = 0, *, shown: bool = False
) -> str:
    """A table with its numbers on the right: columns whose head begins with # hold numbers."""
    if not rows:
        return ""
    kinds = [' class="n"' if head.startswith("#") else "" for head in heads]
    head = "".join(
        f'<th scope="col"{kind}>{_text(one.lstrip("#"))}</th>' for one, kind in zip(heads, kinds, strict=True)
    )
    body = "".join(
        "<tr>" + "".join(f"<td{kind}>{_text(cell)}</td>" for cell, kind in zip(row, kinds, strict=True)) + "</tr>\n"
        for row in rows[:ROWS]
    )
    left = more + max(len(rows) - ROWS, 0)
    rest = f'<p class="soft">{_text(words.some(left, "more row"))} not shown here.</p>' if left else ""
    if len(rows) > PRINTED:
        rest += f'<p class="print">On paper: the first {PRINTED} of {words.count(len(rows[:ROWS]))} rows.</p>'
    table = f'<div class="scroll"><table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>{rest}'
    if shown:
        return table
    return f"<details><summary>{_text(summary)}</summary>{table}</details>\n"


def _head(facts: Facts, found: Sequence[Finding], name: str) -> str:
    severity, sentence = health(facts, found)
    figures = [
        ("Receiving hosts", words.count(len(facts.hosts)), ""),
        (
            "Senders",
            words.count(facts.senders),
            f"and {words.about(facts.folded['pairs of hosts and senders'])} more pairs"
            if "pairs of hosts and senders" in facts.folded
            else "",
        ),
        ("Messages", words.about(facts.messages), words.rate(facts.messages / max(facts.period / words.SECOND, 1))),
        (
            "Lost on the way",
            words.share(facts.lost / facts.due) if facts.due else "unknown",
            f"{words.about(facts.lost)} of {words.about(facts.due)} arrivals" if facts.due else "",
        ),
        ("Refused", words.about(facts.refused), "datagrams"),
    ]
    boxes = "".join(
        f"<div><dt>{_text(label)}</dt><dd>{_text(value)}{f'<small>{_text(small)}</small>' if small else ''}</dd></div>"
        for label, value, small in figures
    )
    told = (
        f"In {words.duration(facts.period)}, {words.some(len(facts.hosts), 'host')} recorded "
        f"{words.some(facts.messages, 'message')} of {words.some(facts.senders, 'sender')}."
    )
    return (
        f'<header>\n<h1>{_text(name)}</h1>\n<p class="period">{_text(words.span(facts.start, facts.end))}</p>\n'
        f'<p class="verdict s{severity}"><span aria-hidden="true">{_SIGNS[severity]}</span> {_text(sentence)}</p>\n'
        f'<p>{_text(told)} All times are UTC.</p>\n<dl class="figures">{boxes}</dl>\n</header>\n'
    )


def _first(found: Sequence[Finding]) -> str:
    if not found:
        return _section(
            "first", "What to look at first", "Nothing asks for attention. The charts below show what was measured."
        )
    items = []
    for one in found[:FINDINGS]:
        lines = (("Seen", one.evidence), ("Likely", one.cause), ("Do", one.remedy))
        told = "".join(f"<dt>{head}</dt><dd>{_text(text)}</dd>" for head, text in lines)
        items.append(
            f'<li class="s{one.severity}"><span class="tag">{_TAGS[one.severity]}</span>'
            f"<h3>{_text(one.title)}</h3><dl>{told}</dl></li>\n"
        )
    rest = found[FINDINGS:]
    more = (
        _table(
            f"{words.some(len(rest), 'more finding')}", ["What", "Seen"], [(one.title, one.evidence) for one in rest]
        )
        if rest
        else ""
    )
    return _section(
        "first",
        "What to look at first",
        "The most important first, each with what was measured and what it is likely to mean.",
        f'<ol class="findings">{"".join(items)}</ol>{more}',
    )


def _matrix(facts: Facts) -> str:
    table = charts.matrix(facts)
    drawn = charts.draw_matrix(facts)
    what = "sending host" if table.grouped else "sender"
    lead = (
        f"One row for each {what}, one column for each receiving host, the worst first. Figures are percent of what "
        "should have arrived; a dash: nothing was due. A host that misses much of everybody is a dark column, a sender "
        "whom everybody misses a dark row, and trouble between two hosts a single dark cell."
    )
    legend = "".join(
        f'<li><i style="background:var(--h{place})"></i>{name}</li>' for place, name in enumerate(charts.LEVEL_NAMES)
    )
    cut = []
    if table.more_senders:
        cut.append(words.some(table.more_senders, what))
    if table.more_receivers:
        cut.append(words.some(table.more_receivers, "receiver"))
    left = f'<p class="soft">Not shown: {_text(" and ".join(cut))} with less loss.</p>' if cut else ""
    links = sorted(facts.links, key=lambda one: (-one.ratio, -one.lost, one.sender, one.host))
    rows = [
        (
            link.sender,
            link.host,
            words.count(link.due),
            words.count(link.lost_here),
            words.count(link.lost_everywhere),
            words.share(link.ratio),
            words.count(link.not_listening),
            words.count(link.late),
            words.count(link.dup),
        )
        for link in links
    ]
    heads = [
        "Sender",
        "Receiver",
        "#Due",
        "#Missed here",
        "#Reached nobody",
        "#Lost",
        "#Not recording",
        "#Too late",
        "#Extra copies",
    ]
    return _section(
        "matrix",
        "Who misses what from whom",
        lead,
        f'<ul class="legend" aria-label="Loss by colour">{legend}</ul>',
        _chart(drawn, "wide" if len(table.receivers) > 12 else "narrow"),
        left,
        _table(
            "Figures of every pair, the worst first", heads, rows, facts.folded.get("pairs of hosts and senders", 0)
        ),
    )


def _courses(facts: Facts) -> str:
    drawn = charts.draw_courses(facts)
    if drawn is None:
        return _section(
            "courses",
            "Loss over time",
            "Nothing was lost in this time." if facts.due else "Nothing was due in this time.",
        )
    ranked = charts.worst(facts.receivers, 40)
    rows = []
    for name in ranked:
        course = facts.receivers[name]
        shares = charts.percents(course)
        peak = max(range(len(shares)), key=lambda step: shares[step])
        due, lost = sum(course.due), sum(course.lost)
        rows.append(
            (
                name,
                words.count(due),
                words.count(lost),
                words.share(lost / max(due, 1)),
                words.share(shares[peak] / 100),
                words.when(facts.start + peak * facts.step, facts.period),
            )
        )
    return _section(
        "courses",
        "Loss over time",
        f"In steps of {words.duration(facts.step)}: the grey area is of all hosts together, the lines are of the "
        "receivers that lost most.",
        _chart(drawn, "wide"),
        _table(
            "Figures of every receiver that lost something",
            ["Receiver", "#Due", "#Lost", "#Share", "#Worst step", "#From (UTC)"],
            rows,
        ),
    )


def _events(facts: Facts) -> str:
    lines = charts.time_line(facts)
    if not lines:
        return _section("events", "Restarts and silences", "Nobody began anew, and nobody fell silent.")
    rows: list[tuple[int, tuple[str, str, str, str, str]]] = []
    skipped = {(one.src, one.first): one.skipped for one in facts.epochs}
    for line in lines:
        for start, end, what in line.bars:
            ended = what == "open"
            rows.append(
                (
                    start,
                    (
                        line.name,
                        charts.BARS_OF[what][2],
                        words.when(start, facts.period),
                        "" if ended else words.when(end, facts.period),
                        words.duration(end - start),
                    ),
                )
            )
        for at, what in line.marks:
            by = f" by {words.count(skipped[line.name, at])}" if skipped.get((line.name, at)) else ""
            rows.append((at, (line.name, f"{_CAUSES[what]}{by}", words.when(at, facts.period), "", "")))
    rows.sort()
    more = facts.folded.get("restarts", 0) + facts.folded.get("silences", 0)
    shown = f" Of {len(lines)}, the {charts.LINES} with most events." if len(lines) > charts.LINES else ""
    return _section(
        "events",
        "Restarts and silences",
        f"Who began anew, who was not heard by anybody, and which hosts were not recording.{shown}",
        _chart(charts.draw_time_line(facts), "wide"),
        _table(
            "Every event, in order of time",
            ["Who", "What", "From (UTC)", "To (UTC)", "#For"],
            [row for _, row in rows],
            more,
        ),
    )


def set_name(one: Delivery, hosts: Sequence[str]) -> str:
    """A set of receivers by what is shorter to say: who is in it, or who is not."""
    missing = sorted(set(hosts) - one.hosts)
    if not missing:
        return f"all {len(hosts)} hosts" if len(hosts) > 1 else words.plain(hosts[0])
    if not one.hosts:
        return "nobody"
    if len(missing) <= len(one.hosts):
        return f"all but {words.listing([words.plain(name) for name in missing])}"
    return f"only {words.listing([words.plain(name) for name in sorted(one.hosts)])}"


def _sets(facts: Facts) -> str:
    if not facts.delivery:
        return ""
    whole = sum(one.messages for one in facts.delivery)
    bars = [
        Bar(set_name(one, facts.hosts), one.messages, words.count(one.messages))
        for one in facts.delivery[: charts.BARS]
    ]
    label = "How many messages were seen by which sets of hosts; the table has the figures."
    rows = [
        (
            set_name(one, facts.hosts),
            str(len(one.hosts)),
            words.count(one.messages),
            words.share(one.messages / whole),
            words.listing(sorted(set(facts.hosts) - one.hosts), 8) or "nobody",
        )
        for one in facts.delivery
    ]
    return _section(
        "sets",
        "Which hosts received the same",
        "Messages by the set of hosts that saw them, on a scale of powers of ten. Hosts that were not recording did "
        "not see either.",
        _chart(charts.draw_bars("sets", bars, "messages", label, log=True)),
        _table(
            "Every set",
            ["Seen by", "#Hosts", "#Messages", "#Share", "Not seen by"],
            rows,
            facts.folded.get("sets of receivers", 0),
        ),
    )


def _channels(facts: Facts) -> str:
    if not facts.channels:
        return ""
    bars = [Bar(one.name, one.messages, words.about(one.messages)) for one in facts.channels[: charts.BARS]]
    label = "Messages of the busiest channels; the table has the figures."
    rows = [
        (
            one.name,
            words.count(one.messages),
            words.share(one.messages / max(facts.all_messages, 1)),
            words.octets(one.octets),
            f"{words.count(one.longest)} B",
            words.rate(one.peak / 60),
            f"{words.plain(one.busiest)} ({words.share(one.busiest_messages / max(one.messages, 1))})",
        )
        for one in facts.channels
    ]
    seconds = max(facts.period / words.SECOND, 1)
    octets = sum(one.octets for one in facts.channels)
    return _section(
        "channels",
        "Busiest channels",
        f"{words.some(facts.all_channels, 'channel')}, {words.octets(round(octets / seconds))} a second together. Each "
        "message counts once, however many hosts received it.",
        _chart(charts.draw_bars("channels", bars, "messages", label)),
        _table(
            "Figures of the channels",
            ["Channel", "#Messages", "#Share", "#Volume", "#99 of 100 up to", "#Busiest minute", "Busiest sender"],
            rows,
            facts.folded.get("pairs of channels and senders", 0),
        ),
    )


def _refusals(facts: Facts) -> str:
    if not facts.refusals:
        lead = (
            "No datagram was refused." if "integrity" not in facts.missing else "There is no table of what was refused."
        )
        return _section("refused", "Refused datagrams", lead)
    bars = [
        Bar(
            f"{words.plain(one.peer)}: {_REASONS.get(one.verdict, one.verdict)}",
            one.datagrams,
            words.about(one.datagrams),
        )
        for one in facts.refusals[: charts.BARS]
    ]
    label = "Refused datagrams by the address they came from; the table has the figures."
    rows = [
        (
            one.peer,
            _REASONS.get(one.verdict, one.verdict),
            words.count(one.datagrams),
            words.count(one.hosts),
            words.listing([*map(words.plain, one.claimed), *[""] * (one.names - len(one.claimed))]),
            words.when(one.first, facts.period),
            words.when(one.last, facts.period),
        )
        for one in facts.refusals
    ]
    return _section(
        "refused",
        "Refused datagrams",
        "By the address they came from, and why. What several hosts heard counts once.",
        _chart(charts.draw_bars("refused", bars, "datagrams", label)),
        _table(
            "Figures of every address",
            ["From", "Why", "#Datagrams", "#Refused by hosts", "Claimed to be", "#First (UTC)", "#Last (UTC)"],
            rows,
            facts.folded.get("groups of refused datagrams", 0),
        ),
    )


def _clocks(facts: Facts) -> str:
    if not facts.clocks:
        return ""
    rows = [
        (
            one.host,
            one.against,
            words.signed(one.middle),
            words.signed(one.low),
            words.signed(one.high),
            words.count(one.pairs),
        )
        for one in sorted(facts.clocks, key=lambda one: (-abs(one.middle), one.host))
    ]
    against = sorted({words.plain(one.against) for one in facts.clocks})
    return _section(
        "clocks",
        "Clocks",
        f"By how much each host's clock is ahead (+) or behind (-) of that of {words.listing(against)}, told from when "
        "the same messages arrived. The bar spans nine of ten messages.",
        _chart(charts.draw_clocks(facts)),
        _table("Figures of every host", ["Host", "Compared with", "#Middle", "#Lowest", "#Highest", "#Messages"], rows),
    )


def _foot(facts: Facts) -> str:
    notes = [
        "Lost means: due at a host that was recording, and not seen there. What a host hears of itself does not count.",
    ]
    if facts.missing:
        notes.append(f"Tables that were not there: {', '.join(facts.missing)}.")
    for what, count in sorted(facts.folded.items()):
        notes.append(f"Beyond what is listed: {words.about(count)} {what}.")
    return f"<footer>{''.join(f'<p>{_text(note)}</p>' for note in notes)}</footer>\n"
