"""The findings of a report as messages: each once, and again when it became worse or was over in between.

What was published is noted beside the tables after the bus has accepted it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa

from bccnd.core.formats.strict_json import parse_json
from bccnd.errors import PipelineError
from bccnd.journal.file_names import start_of
from bccnd.pipeline.lake import place
from bccnd.pipeline.report import formatting as fmt
from bccnd.pipeline.report.delta_tables import NEEDED, Tables, TimeRange
from bccnd.pipeline.report.fact_queries import query_facts
from bccnd.pipeline.report.facts import Facts
from bccnd.pipeline.report.finding_checks import run_checks
from bccnd.pipeline.report.findings import SEVERITIES, ReportFinding
from bccnd.pipeline.schema import STATE

#: what was published, below the tables
PUBLISHED: Final = f"{STATE}/published.json"
#: a finding is published again when its weight has become so many times greater
WORSE: Final = 1.5
#: findings in one run
MOST: Final = 1000
#: bytes of a message, which has to fit into a datagram; names in it; characters to which texts and names are cut until
#: it does
_SIZE: Final = 1200
_NAMES: Final = 4
_CUTS: Final = (400, 200, 100, 50, 25)
_TEXTS: Final = ("title", "evidence", "remedy")


def look(where: str, severity: int, days: int) -> tuple[Facts, list[ReportFinding]]:
    """The findings of at least this severity on the latest days. Raises PipelineError."""
    tables = Tables(where)
    latest = tables.days(NEEDED)[-days:]
    facts = query_facts(tables, TimeRange(start_of(latest[0])) if latest else TimeRange())
    return facts, [finding for finding in run_checks(facts) if finding.severity <= severity]


def identify(finding: ReportFinding) -> str:
    """Identify a finding in later runs; one that stands for several also if it is about others then."""
    return json.dumps([finding.kind, finding.shared if finding.members else finding.about, finding.at])


def message(finding: ReportFinding, facts: Facts) -> bytes:
    """One JSON object; a message that is sent twice has the same ``id``."""
    times = {"from": facts.start, "to": facts.end} | ({} if finding.at is None else {"at": finding.at})
    parts: dict[str, Any] = {"kind": finding.kind, "severity": SEVERITIES[finding.severity]}
    parts |= {part: f"{fmt.moment(at):%Y-%m-%dT%H:%M:%SZ}" for part, at in times.items()}
    parts["id"] = hashlib.sha256(json.dumps([identify(finding), finding.severity, facts.end]).encode()).hexdigest()[:16]
    texts = {part: getattr(finding, part).replace("\N{NO-BREAK SPACE}", " ") for part in _TEXTS}
    text = b""
    for cut in _CUTS:
        parts["about"] = [fmt.shortened(name, cut) for name in finding.about[:_NAMES]]
        parts |= {part: fmt.shortened(words, cut) for part, words in texts.items()}
        text = json.dumps(parts, separators=(",", ":"), ensure_ascii=False).encode()
        if len(text) <= _SIZE:
            break
    return text


class Published:
    """The severities and weights of published findings, in a small file below the tables."""

    def __init__(self, where: str) -> None:
        """Raises PipelineError: bad_state, no_place."""
        self._root = place.Root(where)
        self._published: dict[str, tuple[int, float]] = {}
        with place.usable(where):
            text = self._root.text(PUBLISHED)
        try:
            entries = parse_json(text)["published"] if text else {}
            self._published = {
                str(name): (int(severity), float(weight)) for name, (severity, weight) in entries.items()
            }
        except (ValueError, KeyError, AttributeError, TypeError, OverflowError) as error:
            raise PipelineError(
                "bad_state", f"{self._root.at(PUBLISHED)} is damaged", "remove it: all findings will be published again"
            ) from error

    def news(self, ranked: Iterable[ReportFinding]) -> list[ReportFinding]:
        """Findings that were not published, or became worse."""
        return [finding for finding in ranked if self._is_news(finding)]

    def _is_news(self, finding: ReportFinding) -> bool:
        severity, weight = self._published.get(identify(finding), (len(SEVERITIES), 0.0))
        return finding.severity < severity or finding.weight > WORSE * weight

    def write(self, ranked: Sequence[ReportFinding], published: Sequence[ReportFinding]) -> None:
        """Note what was published; forget what is not among the findings any more. Raises OSError."""
        current = {identify(finding) for finding in ranked}
        self._published = {name: state for name, state in self._published.items() if name in current}
        self._published |= {identify(finding): (finding.severity, finding.weight) for finding in published}
        try:
            self._root.put(PUBLISHED, json.dumps({"published": self._published}))
        except pa.ArrowException as error:
            raise OSError(str(error)) from error
