"""The rules: promtool takes them, each alert fires when it should and only then, and each serious drop has one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from bccnd.core.wire.frames import LINKS
from bccnd.drop_catalog.drops import DROPS
from tests.docs.lookup import wrong
from tests.etc.promql import named
from tests.etc.rulebook import DASHBOARD, FOLDER, RULES, alerts, records, rules
from tests.prometheus import promtool
from tests.support import ROOT

SEVERITIES: Final = {"critical", "warning", "info"}
#: serious drops that an alert sees by another metric: a log that was set aside was reported when that was done
SEEN_OTHERWISE: Final = {("recorder_logs_removed", "recorder_logs_removed")}
#: a row for each alert and severity: samples of a minute each, with which it fires or is silent at a time
ROWS: Final[dict[str, dict[str, dict[str, str]]]] = yaml.safe_load(Path(__file__).with_name("alerts.yaml").read_text())
#: what a series has unless it names another one
_TARGET: Final = {"job": "bccnd", "instance": "relay01:9540"}

#: seconds between scrapes, and of each unit of a duration
SCRAPE: Final = 60
SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
#: alerts on what lasts: once is how networks are
LASTING: Final = {
    ("BccndKernelDrops", "critical"), ("BccndHearsNothing", "critical"), ("BccndSendErrors", "warning"),
    ("BccndSendErrors", "critical"), ("BccndStale", "warning"), ("BccndIntegrity", "warning"),
    ("BccndMalformed", "warning"), ("BccndForwardingSlow", "warning"),
}  # fmt: skip


def test_promtool_accepts_rules_and_configuration() -> None:
    for words in (("rules", "--lint=all", "--lint-fatal", RULES), ("config", FOLDER / "scrape.yml")):
        done = promtool("check", *words)
        assert done.returncode == 0, done.stdout + done.stderr


def series(text: str) -> str:
    """A series of a row, with the labels of its target."""
    metric, _, labels = text.partition("{")
    held = "".join(f', {name}="{value}"' for name, value in _TARGET.items() if f"{name}=" not in labels)
    return f"{metric}{{{(labels.removesuffix('}') + held).removeprefix(', ')}}}"


def unit_test(name: str, kind: str, row: dict[str, str]) -> dict[str, Any]:
    """A test for promtool, which counts how many alerts of a severity fire."""
    alert, severity = name.split()
    count = f'count(ALERTS{{alertname="{alert}", severity="{severity}", alertstate="firing"}}) or vector(0)'
    expected = {"labels": "{}", "value": int(row.get("count", 1)) if kind == "fires" else 0}
    samples = {one: values for one, values in row.items() if one not in ("at", "count")}
    return {
        "interval": "1m",
        "input_series": [{"series": series(one), "values": values} for one, values in samples.items()],
        "promql_expr_test": [{"expr": count, "eval_time": row["at"], "exp_samples": [expected]}],
    }


def test_every_alert_has_a_row() -> None:
    assert set(ROWS) == {f"{rule['alert']} {rule['labels']['severity']}" for rule in alerts}
    for name, row in ROWS.items():
        assert set(row) == {"fires", "silent"}, name
    waits = {f"{rule['alert']} {rule['labels']['severity']}": seconds(rule.get("for", "0m")) for rule in alerts}
    assert [name for name, row in ROWS.items() if seconds(row["silent"]["at"]) < waits[name]] == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    groups = [group["name"] for group in yaml.safe_load(RULES.read_text())["groups"]]
    tests = [unit_test(name, kind, row) for name, kinds in ROWS.items() for kind, row in kinds.items()]
    document = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "group_eval_order": groups, "tests": tests}
    file = tmp_path / "tests.yml"
    file.write_text(json.dumps(document))
    done = promtool("test", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr


def seconds(duration: str) -> int:
    return int(duration[:-1]) * SECONDS[duration[-1]]


def test_an_alert_waits_no_longer_than_it_sees_a_burst() -> None:
    """A window shows what happened between two scrapes for its length less a scrape, and less an evaluation."""
    for rule in alerts:
        if (rule["alert"], rule["labels"]["severity"]) in LASTING:
            continue
        expression = re.sub(r"[\w:]+", lambda name: records.get(name[0], name[0]), rule["expr"])
        waits = seconds(rule.get("for", "0m"))
        windows = re.findall(r"(?:increase|rate)\(.*?\[(\w+)\]", expression)
        assert all(waits <= seconds(window) - 2 * SCRAPE for window in windows), rule


def test_the_samples_know_jobs_severities_and_alerts() -> None:
    jobs = {job["job_name"] for job in yaml.safe_load((FOLDER / "scrape.yml").read_text())["scrape_configs"]}
    selectors = [selector for rule in rules for selector in named(rule["expr"]).selectors]
    assert {matcher.value for one in selectors for matcher in one.matchers if matcher.label == "job"} == jobs
    assert {matcher.value for one in selectors for matcher in one.matchers if matcher.label == "segment"} == set(LINKS)
    sample = yaml.safe_load((FOLDER / "alertmanager.yml").read_text())
    routes = [sample["route"], *sample["route"]["routes"]]
    assert {route["receiver"] for route in routes} == {one["name"] for one in sample["receivers"]}
    assert set(re.findall(r'severity="(\w+)"', str(sample["route"]))) | {"warning"} == SEVERITIES
    known = {rule["alert"] for rule in alerts}
    assert set(re.findall(r'alertname!?="(\w+)"', str(sample["inhibit_rules"]))) <= known


def test_an_alert_says_where_how_much_and_what_can_be_typed() -> None:
    for rule in alerts:
        annotations = rule["annotations"]
        assert rule["labels"]["severity"] in SEVERITIES
        assert "$value" in annotations["description"]
        everywhere = "without (instance)" in rule["expr"] or rule["expr"].startswith("absent(")
        assert everywhere or all("$labels.instance" in annotations[part] for part in ("summary", "description")), rule
        assert annotations["runbook_url"].endswith(f"/runbook#{rule['alert'].lower()}")
        text = re.sub(r"\{\{.*?\}\}", "nng" if "gateway" in rule["expr"] else "bccnd", annotations["description"])
        commands = re.findall(r"'((?:bccnd?|systemctl|journalctl) [^']+)'", text)
        assert [fault for one in commands if (fault := wrong(one))] == []


def test_every_alert_has_an_entry_in_the_runbook_and_the_reverse() -> None:
    part = re.search(r"^## Alerts$(.*?)(?=^## |\Z)", (ROOT / "docs/runbook.md").read_text(), re.MULTILINE | re.DOTALL)
    assert part is not None
    titles = re.findall(r"^### (.*)$", part[1], re.MULTILINE)
    assert sorted(titles) == sorted({rule["alert"] for rule in alerts})


def test_the_runbook_of_the_daemon_has_what_alerts_link_to() -> None:
    anchors = re.findall(r' id="([^"]*)"', (ROOT / "bccnd/monitoring/runbook.html").read_text())
    assert len(set(anchors)) == len(anchors)
    assert {rule["annotations"]["runbook_url"].partition("/runbook#")[2] for rule in alerts} <= set(anchors)
    assert {drop.name for drop in DROPS} <= set(anchors)


def test_labels_of_targets_are_kept() -> None:
    """Nothing is summed up by a list of labels that stay, which would drop labels that an operator gave to targets."""
    for rule in rules:
        assert not re.search(r"\bby\s*\(", rule["expr"]), rule["expr"]
        joined = re.findall(r"\bon\s*\(([^)]*)\)", rule["expr"])
        assert {one.replace(" ", "") for one in joined} <= {"job,instance"}, rule["expr"]


def test_every_serious_drop_has_an_alert_and_no_other_has() -> None:
    selectors = [selector for rule in alerts for selector in named(rule["expr"]).selectors]
    for drop in DROPS:
        if (drop.family, drop.name) in SEEN_OTHERWISE or drop.name == "stale":  # some of that is normal, much is not
            continue
        seen = any(
            all(matcher.fits(drop.name) for matcher in selector.matchers if matcher.label == drop.label)
            for selector in selectors
            if selector.metric == f"bccnd_{drop.family}_total"
            and (drop.serious or any(matcher.label == drop.label for matcher in selector.matchers))
        )
        assert seen == drop.serious, drop


def test_the_package_has_rules_and_dashboard() -> None:
    debian = (ROOT / "packaging/debian/rules").read_text()
    found = re.findall(r"-t \$\(TREE\)/usr/(share/bccnd/\w+) (etc/\S+)", debian)
    assert {place: set(ROOT.glob(pattern)) for place, pattern in found} == {
        "share/bccnd/prometheus": {path for path in FOLDER.iterdir() if path.is_file()},
        "share/bccnd/grafana": {path for path in DASHBOARD.parent.iterdir() if path.is_file()},
    }
