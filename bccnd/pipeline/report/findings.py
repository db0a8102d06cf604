"""All findings of a report, ranked. Pure functions of the facts; a fleet without faults has no findings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bccnd.pipeline.report import formatting as fmt
from bccnd.pipeline.report import loss_findings, source_findings, traffic_findings
from bccnd.pipeline.report.facts import Facts
from bccnd.pipeline.report.finding import LOOK, NOTE, URGENT, Finding

#: the order of findings with the same severity
KINDS: Final = (
    *("forged", "segment", "host_down", "died", "sender", "receiver", "link", "flood", "restarts", "jump"),
    *("clock", "late", "silent", "copies", "twice", "unknown", "not_recording", "left"),
)
#: the severity of a report without findings
WELL: Final = 3

_CHECKS: Final = (*loss_findings.CHECKS, *source_findings.CHECKS, *traffic_findings.CHECKS)


def findings(facts: Facts) -> list[Finding]:
    """The most important first."""
    every = (one for check in _CHECKS for one in check(facts))
    return sorted(every, key=lambda one: (one.severity, KINDS.index(one.kind), -one.weight, one.about))


def health(facts: Facts, ranked: Sequence[Finding]) -> tuple[int, str]:
    """The state of the fleet: a severity, and one sentence."""
    urgent, look = (sum(one.severity == severity for one in ranked) for severity in (URGENT, LOOK))
    links = facts.crossing
    loss = f"{fmt.share(links.ratio)} of what should have arrived was lost" if links.due else ""
    if urgent:
        rest = urgent + look - 1
        more = f"; {fmt.quantity(rest, 'more thing')} to look at" if rest else ""
        return URGENT, f"Needs attention: {ranked[0].title}{more}."
    if look:
        return LOOK, f"It works, with {fmt.quantity(look, 'thing')} to look at" + (f"; {loss}." if loss else ".")
    if not links.due:
        return NOTE, "Loss is unknown: no numbered messages were received."
    return WELL, f"All is well: {loss}, too little to act on." if links.lost else "All is well: nothing was lost."
