"""Findings with a common cause are one, and only these."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bccnd.pipeline.report.common_causes import join_common_causes
from bccnd.pipeline.report.findings import LOOK, URGENT, ReportFinding
from tests.pipeline.reporting import MINUTE, START, full

#: kind -> names (and when, in minutes; None: no time of its own), and how many findings become of it
CASES: list[tuple[str, Sequence[tuple[str, float | None]], list[int]]] = [
    ("host_down", [(f"h{n}", n / 20) for n in range(20)], [20]),
    # two are no group, nor are those before them
    ("host_down", [(f"h{n}", n // 2 * 5) for n in range(6)], [1] * 6),
    ("host_down", [("h1", 0), ("h2", 0.4), ("h3", 0.9), ("h4", 30)], [1, 3]),
    ("died", [(f"h{n}/app", 7) for n in range(5)], [5]),
    # of one machine, one after the other
    ("died", [(f"h1/app{n}", n * 10) for n in range(4)] + [("h2/app", 11), ("h3/app", 25)], [1, 1, 4]),
    ("silent", [(f"h{n}/app", n * 10) for n in range(4)], [1] * 4),
    ("restarts", [(f"h1/app{n}", None) for n in range(4)] + [("h2/app1", None)], [1, 4]),
    # the same program on many hosts
    ("restarts", [(f"h{n}/meter", None) for n in range(4)] + [("h9/other", None)], [1, 4]),
    ("receiver", [(f"h{n}", 20) for n in range(3)] + [(f"h{n}", None) for n in (7, 8)], [1, 1, 3]),
    ("receiver", [(f"h{n}", None) for n in range(3)], [3]),
    ("clock", [(f"h{n}", None) for n in range(3)], [3]),
    # every kind that has texts for several
    *(
        (kind, [(f"h{n}/app", 7) for n in range(3)], [3])
        for kind in ("sender", "link", "jump", "unordered", "copies", "missing", "not_recording", "unknown", "silent")
    ),
    *((kind, [(f"h1/app{n}", n * 9) for n in range(3)], [3]) for kind in ("silent", "jump", "unordered")),
    ("flood", [(f"c{n}", None) for n in range(9)], [1] * 9),
    ("forged", [(f"192.0.2.{n}", None) for n in range(9)], [9]),
]


@pytest.mark.parametrize(("kind", "who", "sizes"), CASES)
def test_what_has_a_common_cause_is_one_finding(
    kind: str, who: Sequence[tuple[str, float | None]], sizes: list[int]
) -> None:
    singles = []
    for number, (name, minute) in enumerate(who):
        time = None if minute is None else START + round(minute * MINUTE)
        single = ReportFinding(kind, URGENT if not number else LOOK, (name,), f"{name} has it", "much", "", "", number)
        of_loss = kind in ("receiver", "sender", "link")
        singles.append(single._replace(began=time) if of_loss else single._replace(at=time))
    joined = join_common_causes(singles, full())
    assert sorted(len(finding.members) or 1 for finding in joined) == sizes
    # no name is lost, and the gravest counts
    assert sorted(name for finding in joined for name in finding.about) == sorted(name for name, _ in who)
    assert min(finding.severity for finding in joined) == URGENT
    for finding in joined:
        text = f"{finding.title} {finding.evidence} {finding.cause} {finding.remedy}"
        assert "None" not in text
        if finding.members:
            assert str(len(finding.members)) in finding.title
            assert finding.weight == len(finding.members)
