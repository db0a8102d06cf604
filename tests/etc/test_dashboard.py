"""The dashboard: it belongs to no server, no panel lies upon another, and promtool takes each of its expressions."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

from tests.etc.promql import named
from tests.etc.rulebook import OWN, alerts, dashboard, records, shown
from tests.prometheus import promtool

PANELS: Final = [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def test_it_belongs_to_no_server_and_uses_its_variables() -> None:
    assert (dashboard["uid"], dashboard["id"]) == ("bccnd", None)
    sources = {json.dumps(panel["datasource"]) for panel in PANELS}
    sources |= {json.dumps(target["datasource"]) for panel in PANELS for target in panel["targets"]}
    assert sources == {json.dumps({"type": "prometheus", "uid": "${datasource}"})}
    variables = {one["name"] for one in dashboard["templating"]["list"]}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(dashboard["panels"]))) == variables


def test_a_panel_has_a_unit_and_a_link_into_the_runbook() -> None:
    entries = {"alerts", "what-is-dropped-by-name", *(rule["alert"].lower() for rule in alerts)}
    for panel in PANELS:
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["fieldConfig"]["defaults"]["thresholds"]["steps"][0]["value"] is None
        (link,) = panel["links"]
        assert link["url"].removeprefix("http://${runbook}/runbook#") in entries, panel["title"]
        letters = [target["refId"] for target in panel["targets"]]
        assert len(set(letters)) == len(letters) > 0


def test_promtool_takes_every_expression(tmp_path: Path) -> None:
    rules = [{"record": f"panel:expression:{number}", "expr": text} for number, text in enumerate(shown())]
    file = tmp_path / "panels.yml"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    done = promtool("check", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout


def test_every_family_that_an_alert_looks_at_is_shown() -> None:
    on_panels = {selector.metric for text in shown() for selector in named(text).selectors}
    recorded = {name: {one.metric for one in named(text).selectors} for name, text in records.items()}
    while more := {metric for name in on_panels & set(recorded) for metric in recorded[name]} - on_panels:
        on_panels |= more
    looked_at = {selector.metric for rule in alerts for selector in named(rule["expr"]).selectors} - on_panels
    looked_at |= {origin for name in looked_at & set(recorded) for origin in recorded[name]}
    # The dashboard is that of daemons and recorders.
    looked_at = {name for name in looked_at if not name.startswith("bccnd_pipeline_")}
    assert looked_at - set(recorded) - on_panels - OWN == {"bccnd_recorder_build_info"}
