"""docs/metrics.md: one row for each metric, each with what to do about it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from docs import metrics
from docs.site import DOCS

PAGE = metrics.page()


def test_each_metric_has_one_row_with_what_to_do() -> None:
    items = re.split(r"\n(?=- |#)", PAGE.partition("\n## Values of labels")[0])
    rows = [re.match(r"- `(bccnd_\w+)[^`]*`: (\S.*)", item) for item in items]
    names = [row[1] for row in rows if row]
    assert len(names) == len(set(names)) > 60
    assert {"bccnd_datagrams_total", "bccnd_build_info", "bccnd_queue_bytes", "bccnd_forward_seconds"} <= set(names)


def test_what_the_page_points_to_in_the_runbook_is_there() -> None:
    headings = re.findall(r"^### (\S+)$", (DOCS / "runbook.md").read_text(), re.MULTILINE)
    anchors = set(re.findall(r"\(runbook\.md#([^)]+)\)", PAGE))
    assert anchors
    assert anchors <= {heading.lower() for heading in headings}


def test_a_metric_without_anything_to_do_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    actions: dict[str, Any] = {name: text for name, text in metrics._ACTIONS.items() if name != "deliveries"}
    monkeypatch.setattr(metrics, "_ACTIONS", actions)
    with pytest.raises(ValueError, match="bccnd_deliveries"):
        metrics.page()
