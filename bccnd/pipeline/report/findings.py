"""A finding of a report: one thing to look at, with its texts, or several things with a common cause."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from bccnd.pipeline.report import formatting as fmt
from bccnd.pipeline.report import jinja_templates
from bccnd.pipeline.report.facts import Facts

#: severities; the last is that of a report without findings
URGENT, LOOK, NOTE, WELL = range(4)
SEVERITIES: Final = ("urgent", "look", "note")
#: the order of findings with the same severity
KINDS: Final = (
    *("forged", "segment", "host_down", "died", "sender", "receiver", "link", "flood", "restarts", "jump", "unordered"),
    *("clock", "unknown_clock", "damaged", "missing", "late", "silent", "copies", "twice", "unknown", "not_recording"),
    "left",
)


class ReportFinding(NamedTuple):
    """One thing to look at. ``about`` are the hosts, programs, addresses or channels concerned, ``weight`` orders
    findings of one kind and can be compared between reports, ``at`` is when it began, if it has a time of its own."""

    kind: str
    severity: int
    about: tuple[str, ...]
    title: str
    evidence: str
    cause: str
    remedy: str
    weight: float = 0.0
    at: int | None = None
    #: of one that stands for several: what they have in common beside the time, and what each of them is
    shared: str = ""
    members: tuple[str, ...] = ()
    #: when it began, in steps of the charts, of a finding without ``at``
    began: int | None = None


def describe(
    facts: Facts,
    kind: str,
    severity: int,
    about: Sequence[str],
    values: Mapping[str, Any],
    weight: float = 0.0,
    at: int | None = None,
    texts: str = "",
) -> ReportFinding:
    """Make a finding with its texts from findings.toml: the section of its kind, or ``texts``."""
    context = {**values, "facts": facts, "period": facts.period, "at": at}
    title, evidence, cause, remedy = (
        jinja_templates.text(texts or kind, part).render(context) for part in ("title", "evidence", "cause", "remedy")
    )
    return ReportFinding(kind, severity, tuple(about), title, evidence, cause, remedy, weight, at)


def rank(unranked: Iterable[ReportFinding]) -> list[ReportFinding]:
    """Return findings, the most important first."""
    return sorted(
        unranked, key=lambda finding: (finding.severity, KINDS.index(finding.kind), -finding.weight, finding.about)
    )


def health(facts: Facts, ranked: Sequence[ReportFinding]) -> tuple[int, str]:
    """Describe the state of the fleet: a severity, and one sentence."""
    urgent, look = (sum(finding.severity == severity for finding in ranked) for severity in (URGENT, LOOK))
    links = facts.crossing
    loss = "" if links.ratio is None else f"{fmt.share(links.ratio)} of what should have arrived was lost"
    if urgent:
        rest = urgent + look - 1
        more = f"; {fmt.quantity(rest, 'more thing')} to look at" if rest else ""
        return URGENT, f"Needs attention: {ranked[0].title}{more}."
    if look:
        return LOOK, f"It works, with {fmt.quantity(look, 'thing')} to look at" + (f"; {loss}." if loss else ".")
    if not loss:
        return NOTE, "Loss is unknown: no numbered messages were received."
    return WELL, f"All is well: {loss}, too little to act on." if links.lost else "All is well: nothing was lost."
