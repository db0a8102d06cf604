"""Groups findings that have a common cause: hosts that stop in one minute are one finding, not twenty."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from bccnd.pipeline.report import formatting as fmt
from bccnd.pipeline.report.facts import Facts, sending_host
from bccnd.pipeline.report.findings import ReportFinding, describe

#: findings from which on they are one
MANY: Final = 3
#: what findings share, and whether they also began within the same minute, or the same step of the charts
_Rule = tuple[Callable[[ReportFinding], str], bool]
_Item = TypeVar("_Item")


def _nothing(_: ReportFinding) -> str:
    return ""


def _machine(finding: ReportFinding) -> str:
    return sending_host(finding.about[0])


def _program(finding: ReportFinding) -> str:
    """Return the name of a program without its host: the same program runs on many hosts."""
    return finding.about[0].partition("/")[2]


def _reason(finding: ReportFinding) -> str:
    return finding.cause


#: kinds whose begin is known in steps of the charts
_BY_STEP: Final = ("receiver", "sender", "link")
#: kind -> rules; what one does not group is left to the next
_RULES: Final[Mapping[str, tuple[_Rule, ...]]] = {
    **dict.fromkeys(("host_down", "receiver", "sender", "link"), ((_nothing, True),)),
    **dict.fromkeys(("died", "silent"), ((_nothing, True), (_machine, False))),
    **dict.fromkeys(("restarts", "jump", "unordered"), ((_machine, False), (_program, False))),
    **dict.fromkeys(("clock", "copies", "missing", "not_recording"), ((_nothing, False),)),
    **dict.fromkeys(("forged", "unknown"), ((_reason, False),)),
}


def join_common_causes(findings: Sequence[ReportFinding], facts: Facts) -> list[ReportFinding]:
    """Return the findings, each `MANY` or more with a common cause as one."""
    grouped: list[ReportFinding] = []
    for kind in dict.fromkeys(finding.kind for finding in findings):
        single = [finding for finding in findings if finding.kind == kind]
        for shared, timed in _RULES.get(kind, ()):
            window = facts.step if kind in _BY_STEP else fmt.MINUTE
            clusters = cluster(single, shared, _began, window if timed else math.inf)
            grouped += [_join(many, shared(many[0]), timed, facts) for many in clusters if len(many) >= MANY]
            single = [finding for few in clusters if len(few) < MANY for finding in few]
        grouped += single
    return grouped


def _began(finding: ReportFinding) -> int:
    """Return when a finding began; those that lasted all the time began together, before all others."""
    return next((time for time in (finding.at, finding.began) if time is not None), 0)


def cluster(
    items: Iterable[_Item], shared: Callable[[_Item], str], began: Callable[[_Item], int], window: float
) -> list[list[_Item]]:
    """Return the items that share something and began within a time of the first of them."""
    clusters: list[list[_Item]] = []
    for item in sorted(items, key=lambda item: (shared(item), began(item))):
        first = clusters[-1][0] if clusters else None
        if first is not None and shared(first) == shared(item) and began(item) - began(first) <= window:
            clusters[-1].append(item)
        else:
            clusters.append([item])
    return clusters


def _join(many: Sequence[ReportFinding], shared: str, timed: bool, facts: Facts) -> ReportFinding:
    """Make one finding of several; its weight is how many they are."""
    first, worst = many[0], sorted(many, key=lambda finding: (finding.severity, -finding.weight))
    about = tuple(dict.fromkeys(name for finding in worst for name in finding.about))
    machines = {sending_host(finding.about[0]) for finding in many}
    values = {
        "count": len(many),
        "names": list(dict.fromkeys(finding.about[0] for finding in worst)),
        "machine": machines.pop() if len(machines) == 1 else "",
        "shared": shared,
        "began": _began(first) if timed and _began(first) else None,
        "worst": worst[0],
    }
    at = first.at if timed else None
    joined = describe(facts, first.kind, worst[0].severity, about, values, len(many), at, f"many_{first.kind}")
    members = tuple(f"{finding.title}: {finding.evidence}" for finding in worst)
    return joined._replace(shared=shared, members=members)
