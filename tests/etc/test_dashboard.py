"""The dashboard: Grafana can read it, nothing lies upon anything else, each panel says what it shows and what to do,
and promtool takes each of its expressions."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest

from tests.etc.promql import named
from tests.etc.rulebook import OWN, alerts, dashboard, promtool, records, shown
from tests.support import ROOT

#: what a current Grafana (10.4 and later) reads without changing it
SCHEMA: Final = 39
#: columns of Grafana's grid
WIDTH: Final = 24
ROWS: Final = ["Overview", "Segments and verdicts", "Sources", "Clients", "Gateways", "Recorder", "Process"]

PANELS: Final = [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def title_of(panel: dict[str, Any]) -> str:
    return str(panel["title"])


def cells(panel: dict[str, Any]) -> set[tuple[int, int]]:
    place = panel["gridPos"]
    assert place["x"] >= 0
    assert place["x"] + place["w"] <= WIDTH
    return {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}


def test_it_is_one_that_a_current_grafana_reads_and_that_belongs_to_no_server() -> None:
    board = dashboard()
    assert board["schemaVersion"] == SCHEMA
    assert (board["uid"], board["id"]) == ("bccnd", None)
    sources = {json.dumps(panel["datasource"]) for panel in PANELS}
    sources |= {json.dumps(target["datasource"]) for panel in PANELS for target in panel["targets"]}
    assert sources == {json.dumps({"type": "prometheus", "uid": "${datasource}"})}
    variables = {one["name"]: one["type"] for one in board["templating"]["list"]}
    assert variables == {
        "datasource": "datasource",
        "job": "query",
        "instance": "query",
        "recorder": "query",
        "runbook": "constant",
    }
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(board["panels"])))
    assert used == set(variables)


def test_numbers_are_given_once_and_nothing_lies_upon_anything_else() -> None:
    panels = dashboard()["panels"]
    numbers = [panel["id"] for panel in panels]
    assert len(set(numbers)) == len(numbers)
    taken: dict[tuple[int, int], str] = {}
    for panel in panels:
        for cell in cells(panel):
            assert taken.setdefault(cell, panel["title"]) == panel["title"], f"{panel['title']} lies upon {taken[cell]}"
    rows = [panel for panel in panels if panel["type"] == "row"]
    assert [row["title"].partition(":")[0] for row in rows] == ROWS
    assert all(before["gridPos"]["y"] < after["gridPos"]["y"] for before, after in pairwise(rows))


@pytest.mark.parametrize("panel", PANELS, ids=title_of)
def test_a_panel_says_what_it_shows_in_which_unit_and_what_to_do(panel: dict[str, Any]) -> None:
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["fieldConfig"]["defaults"]["thresholds"]["steps"][0]["value"] is None
    (link,) = panel["links"]
    anchor = re.fullmatch(r"\$\{runbook\}#([a-z-]+)", link["url"])
    assert anchor is not None
    assert anchor[1] in {"alerts", "what-is-dropped-by-name", *(rule["alert"].lower() for rule in alerts())}
    letters = [target["refId"] for target in panel["targets"]]
    assert len(set(letters)) == len(letters) > 0


def test_titles_are_told_apart() -> None:
    titles = [panel["title"] for panel in PANELS]
    assert len(set(titles)) == len(titles)


def test_it_says_what_the_alerts_say() -> None:
    """Loss turns yellow and red where the alerts do."""
    (panel,) = [panel for panel in PANELS if panel["title"] == "Loss by host"]
    steps = [step["value"] for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]]
    expressions = [rule["expr"] for rule in alerts() if rule["alert"] == "BccndLoss"]
    assert [f"{step:g}" for step in steps[1:]] == [re.findall(r"> ([\d.]+)", one)[0] for one in expressions]


def test_promtool_takes_every_expression(tmp_path: Path) -> None:
    rules = [{"record": f"panel:expression:{number}", "expr": text} for number, text in enumerate(shown())]
    file = tmp_path / "panels.yml"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    done = promtool("check", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout
    # It must be this test that would notice.
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": [{"record": "a:b:c", "expr": "sum(("}]}]}))
    assert promtool("check", "rules", file).returncode != 0


def test_every_family_is_shown_somewhere_that_an_alert_looks_at() -> None:
    on_panels = {selector.metric for text in shown() for selector in named(text).selectors}
    # Through what is recorded, too.
    while more := {
        selector.metric
        for name in on_panels & set(records())
        for selector in named(records()[name]).selectors
        if selector.metric not in on_panels
    }:
        on_panels |= more
    looked_at = {selector.metric for rule in alerts() for selector in named(rule["expr"]).selectors}
    assert looked_at - on_panels - OWN == {"bccnd_recorder_build_info"}


def test_the_file_is_written_as_grafana_would_be_compared() -> None:
    """So that a change is a small diff."""
    text = (ROOT / "etc/grafana/bccnd.json").read_text()
    assert text == json.dumps(json.loads(text), indent=2, ensure_ascii=False) + "\n"
