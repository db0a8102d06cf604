"""The rules: promtool takes them and their unit tests, and each serious drop has an alert."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from typing import Final

import pytest
import yaml

from bccnd.core.wire.frames import LINKS
from bccnd.drops.catalog import DROPS
from tests.docs.lookup import wrong
from tests.etc.promql import named
from tests.etc.rulebook import FOLDER, RULES, TESTS, alerts, records, rules, unit_tests
from tests.prometheus import promtool
from tests.support import ROOT

SEVERITIES: Final = {"critical", "warning", "info"}
#: serious drops that an alert sees by another metric: a log that was set aside was reported when that was done
SEEN_OTHERWISE: Final = {("recorder_logs_removed", "recorder_logs_removed")}

#: seconds between scrapes, and of each unit of a duration
SCRAPE: Final = 60
SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
#: metrics that every target has, whatever it is
ABOUT_ALL: Final = {"process_start_time_seconds", "bccnd_build_info", "bccnd_recorder_build_info"}
#: alerts on what lasts: once is how networks are
LASTING: Final = {
    ("BccndKernelDrops", "critical"), ("BccndHearsNothing", "critical"), ("BccndSendErrors", "warning"),
    ("BccndSendErrors", "critical"), ("BccndStale", "warning"), ("BccndIntegrity", "warning"),
    ("BccndMalformed", "warning"), ("BccndForwardingSlow", "warning"),
}  # fmt: skip


def test_promtool_has_nothing_to_say_against_rules_and_configuration(tmp_path: Path) -> None:
    for words in (("rules", "--lint=all", "--lint-fatal", RULES), ("config", FOLDER / "scrape.yml")):
        done = promtool("check", *words)
        assert done.returncode == 0, done.stdout + done.stderr
    bad = tmp_path / "bad.yml"
    bad.write_text(RULES.read_text().replace("sum without (segment)", "sum without segment", 1))
    assert promtool("check", "rules", bad).returncode != 0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_alert_fires_when_it_should_and_only_then() -> None:
    done = promtool("test", "rules", TESTS)
    assert done.returncode == 0, done.stdout + done.stderr


def seconds(duration: str) -> int:
    return int(duration[:-1]) * SECONDS[duration[-1]]


def origins(expression: str) -> set[str]:
    """The metrics of which an expression is made, through what is recorded."""
    metrics = {one.metric for one in named(expression).selectors}
    metrics = metrics.union(*(origins(records[one]) for one in metrics & set(records)))
    return metrics - ABOUT_ALL or metrics


def test_every_alert_fires_in_one_unit_test_and_rests_in_another() -> None:
    """It rests where a target that has its metrics is found well, for longer than the alert waits."""
    fires: set[tuple[str, str]] = set()
    rests: set[tuple[str, str]] = set()
    for rule, group in product(alerts, unit_tests):
        name, severity = rule["alert"], rule["labels"]["severity"]
        checks = [one for one in group.get("alert_rule_test", []) if one["alertname"] == name]
        patient = [one for one in checks if seconds(one["eval_time"]) >= seconds(rule.get("for", "0m"))]
        ill = {
            one["exp_labels"].get("instance", "")
            for check in checks
            for one in check["exp_alerts"]
            if one["exp_labels"]["severity"] == severity
        }
        series = [named(" ".join(one["series"].split())).selectors.pop() for one in group["input_series"]]
        metrics = origins(rule["expr"])
        targets = {
            matcher.value
            for one in series
            if one.metric in metrics
            for matcher in one.matchers
            if matcher.label == "instance"
        }
        if ill:
            fires.add((name, severity))
        if patient and targets - ill and "" not in ill:
            rests.add((name, severity))
    known = {(rule["alert"], rule["labels"]["severity"]) for rule in alerts}
    assert (known - fires, known - rests) == (set(), set())


def test_an_alert_does_not_wait_longer_than_it_sees_a_burst_between_two_scrapes() -> None:
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
        assert annotations["runbook_url"].endswith(f"/docs/runbook.md#{rule['alert'].lower()}")
        text = re.sub(r"\{\{.*?\}\}", "nng" if "gateway" in rule["expr"] else "bccnd", annotations["description"])
        commands = re.findall(r"'((?:bccnd?|systemctl|journalctl) [^']+)'", text)
        assert [fault for one in commands if (fault := wrong(one))] == []


def test_every_alert_has_an_entry_in_the_runbook_and_the_reverse() -> None:
    part = re.search(r"^## Alerts$(.*?)(?=^## |\Z)", (ROOT / "docs/runbook.md").read_text(), re.MULTILINE | re.DOTALL)
    assert part is not None
    titles = re.findall(r"^### (.*)$", part[1], re.MULTILINE)
    assert sorted(titles) == sorted({rule["alert"] for rule in alerts})


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
