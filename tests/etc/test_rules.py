"""The rules: promtool takes them and their unit tests, each alert has all that somebody at night needs, each that can
fire has been seen to fire, and each serious drop has an alert."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from bccnd.net.drops import DROPS
from tests.docs.test_inline import wrong
from tests.etc.promql import named
from tests.etc.rulebook import (
    DASHBOARD,
    FOLDER,
    RULES,
    TESTS,
    alerts,
    groups,
    program,
    promtool,
    records,
    rules,
    unit_tests,
)
from tests.support import ROOT

RUNBOOK: Final = ROOT / "docs/runbook.md"
SEVERITIES: Final = {"critical", "warning", "info"}
#: serious, and seen by another alert than those that name it
SEEN_OTHERWISE: Final = {
    # a log that was set aside long ago was told of then
    ("recorder_logs_removed", "recorder_logs_removed"): "BccndRecorderDamaged",
}


def name_of(rule: dict[str, Any]) -> str:
    return f"{rule['alert']}-{rule['labels']['severity']}"


def test_promtool_has_nothing_to_say_against_the_rules(tmp_path: Path) -> None:
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", RULES)
    assert done.returncode == 0, done.stdout + done.stderr
    # It must be this test that would notice.
    bad = tmp_path / "bad.yml"
    bad.write_text(RULES.read_text().replace("sum without (segment)", "sum without segment", 1))
    assert promtool("check", "rules", bad).returncode != 0


@pytest.mark.timeout(300)
def test_every_alert_fires_when_it_should_and_only_then() -> None:
    done = promtool("test", "rules", TESTS)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("rule", alerts(), ids=name_of)
def test_every_alert_is_seen_to_fire_and_not_to_fire(rule: dict[str, Any]) -> None:
    """In unit tests that know its texts; not to fire both before its time and beside another host's."""
    fires, rests = 0, 0
    for group in unit_tests()["tests"]:
        for check in group.get("alert_rule_test", []):
            if check["alertname"] == rule["alert"]:
                expected = [one["exp_labels"]["severity"] for one in check["exp_alerts"]]
                fires += rule["labels"]["severity"] in expected
                rests += rule["labels"]["severity"] not in expected
                assert all(set(one["exp_annotations"]) == set(rule["annotations"]) for one in check["exp_alerts"])
    assert fires
    assert rests


def test_prometheus_and_alertmanager_take_the_samples(tmp_path: Path) -> None:
    done = promtool("check", "config", FOLDER / "scrape.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    jobs = {job["job_name"] for job in yaml.safe_load((FOLDER / "scrape.yml").read_text())["scrape_configs"]}
    named_jobs = {
        matcher.value
        for rule in rules()
        for selector in named(rule["expr"]).selectors
        for matcher in selector.matchers
        if matcher.label == "job"
    }
    assert named_jobs == jobs
    sample = yaml.safe_load((FOLDER / "alertmanager.yml").read_text())
    receivers = {one["name"] for one in sample["receivers"]}
    routes = [sample["route"], *sample["route"]["routes"]]
    assert {route["receiver"] for route in routes} == receivers
    said = set(re.findall(r'severity="(\w+)"', str(sample["route"])))
    assert said | {"warning"} == SEVERITIES
    known = {rule["alert"] for rule in alerts()}
    assert set(re.findall(r'alertname!?="(\w+)"', str(sample["inhibit_rules"]))) <= known


@pytest.mark.parametrize("rule", alerts(), ids=name_of)
def test_an_alert_says_where_how_much_and_what_to_do_first(rule: dict[str, Any]) -> None:
    assert rule["alert"].startswith("Bccnd")
    assert rule["labels"]["severity"] in SEVERITIES
    said = rule["annotations"]
    assert set(said) == {"summary", "description", "runbook_url"}
    assert "$value" in said["description"]
    assert re.search(r"\b[Ff]irst (see|take|raise|make)\b|'bccn sources'", said["description"])
    everywhere = "without (instance)" in rule["expr"] or rule["expr"].startswith("absent(")
    if not everywhere:
        assert "$labels.instance" in said["summary"]
        assert "$labels.instance" in said["description"]
    assert said["runbook_url"].endswith(f"/docs/runbook.md#{rule['alert'].lower()}")


@pytest.mark.parametrize("rule", alerts(), ids=name_of)
def test_what_an_alert_says_to_type_is_there(rule: dict[str, Any]) -> None:
    text = re.sub(r"\{\{.*?\}\}", "nng" if "gateway" in rule["expr"] else "bccnd", rule["annotations"]["description"])
    said = [
        one for one in re.findall(r"'([^']+)'", text) if one.split()[0] in ("bccn", "bccnd", "systemctl", "journalctl")
    ]
    assert [fault for one in said if (fault := wrong(one))] == []


def test_every_alert_has_an_entry_in_the_runbook_and_the_reverse() -> None:
    part = re.search(r"^## Alerts$(.*?)(?=^## |\Z)", RUNBOOK.read_text(), re.MULTILINE | re.DOTALL)
    assert part is not None
    entries = re.split(r"^### ", part[1], flags=re.MULTILINE)[1:]
    titles = [entry.splitlines()[0] for entry in entries]
    assert sorted(titles) == sorted({rule["alert"] for rule in alerts()})
    for title, entry in zip(titles, entries, strict=True):
        assert re.findall(r"^\*(Means|Look at|Do):\*", entry, re.MULTILINE) == ["Means", "Look at", "Do"], title
        # What it refers to there is.
        assert set(re.findall(r"\bBccnd[A-Z]\w+", entry)) <= set(titles), title


def test_the_worse_alert_of_two_is_the_harder_one_to_meet() -> None:
    """Alerts of one name stand from mild to severe, and say so."""
    by_name: dict[str, list[str]] = {}
    for rule in alerts():
        by_name.setdefault(rule["alert"], []).append(rule["labels"]["severity"])
    order = ["info", "warning", "critical"]
    for name, severities in by_name.items():
        assert len(set(severities)) == len(severities), name
        if name != "BccndLinkPeers":  # none at all is worse than fewer, and is told first
            assert severities == sorted(severities, key=order.index), name


def test_what_is_recorded_is_called_as_is_usual_and_is_used_or_shown() -> None:
    board = DASHBOARD.read_text()
    for name, expression in records().items():
        assert re.fullmatch(r"(instance|instance_verdict|instance_reason|job):bccnd_\w+:\w+", name)
        level, _, operation = name.split(":")
        assert ("rate(" in expression or "rate5m" in expression) == operation.endswith("rate5m"), name
        assert ("without (instance)" in expression) == (level == "job"), name
        users = [rule for rule in rules() if name in rule["expr"] and rule.get("record") != name]
        assert users or name in board, name


def test_labels_of_targets_are_kept() -> None:
    """Nothing is summed up by a list of labels that stay: what somebody has told his targets apart by would be gone."""
    for rule in rules():
        assert not re.search(r"\bby\s*\(", rule["expr"]), rule["expr"]
        joined = re.findall(r"\bon\s*\(([^)]*)\)", rule["expr"])
        assert {one.replace(" ", "") for one in joined} <= {"job,instance"}, rule["expr"]


def test_groups_have_names_of_their_own_and_unit_tests_know_them() -> None:
    names = [group["name"] for group in groups()]
    assert len(set(names)) == len(names)
    assert unit_tests()["group_eval_order"] == names


@pytest.mark.parametrize("drop", [one for one in DROPS if one.serious], ids=lambda one: f"{one.family}-{one.name}")
def test_every_serious_drop_has_an_alert(drop: Any) -> None:
    known = {rule["alert"] for rule in alerts()}
    if (drop.family, drop.name) in SEEN_OTHERWISE:
        assert SEEN_OTHERWISE[drop.family, drop.name] in known
        return
    metric = f"bccnd_{drop.family}_total"
    found = {selector for rule in alerts() for selector in named(rule["expr"]).selectors if selector.metric == metric}
    assert any(
        all(matcher.fits(drop.name) for matcher in selector.matchers if matcher.label == drop.label)
        for selector in found
    ), f"no alert looks at {metric} {drop.label}={drop.name}"


@pytest.mark.parametrize("drop", [one for one in DROPS if not one.serious], ids=lambda one: f"{one.family}-{one.name}")
def test_what_is_normal_has_no_alert(drop: Any) -> None:
    if drop.name == "stale":
        return  # some of it is normal, much is not
    metric = f"bccnd_{drop.family}_total"
    for rule in alerts():
        for selector in named(rule["expr"]).selectors:
            if selector.metric == metric:
                matchers = [matcher for matcher in selector.matchers if matcher.label == drop.label]
                assert not all(matcher.fits(drop.name) for matcher in matchers), rule["alert"]


def test_promtool_and_prometheus_are_of_one_version() -> None:
    assert program("promtool").parent == program("prometheus").parent
