"""The rules of etc/prometheus, as they stand in the file."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support import ROOT, cannot_here

FOLDER: Final = ROOT / "etc/prometheus"
RULES: Final = FOLDER / "bccnd.rules.yml"
TESTS: Final = FOLDER / "bccnd.test.yml"
DASHBOARD: Final = ROOT / "etc/grafana/bccnd.json"
#: what Prometheus gives to every series
TARGET: Final = {"job", "instance"}
#: what Prometheus makes itself, of targets and of rules
OWN: Final = {"up", "scrape_duration_seconds", "ALERTS", "ALERTS_FOR_STATE"}


@cache
def groups() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(RULES.read_text())["groups"]
    return found


@cache
def unit_tests() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(TESTS.read_text())
    return found


@cache
def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return found


def shown() -> list[str]:
    """Every expression of the dashboard, its variables put in as they are when all is chosen."""
    board = dashboard()
    found = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    found += [one["expr"] for one in board["annotations"]["list"] if "expr" in one]
    for name in ("job", "instance", "recorder"):
        found = [expression.replace(f"${name}", ".+") for expression in found]
    return found


def rules() -> Iterator[dict[str, Any]]:
    for group in groups():
        yield from group["rules"]


def alerts() -> list[dict[str, Any]]:
    return [rule for rule in rules() if "alert" in rule]


def records() -> dict[str, str]:
    """What is recorded, and of what."""
    return {rule["record"]: rule["expr"] for rule in rules() if "record" in rule}


def program(name: str) -> Path:
    """Where Prometheus or promtool is."""
    unpacked = ROOT / ".cache/prometheus/usr/bin" / name
    found = str(unpacked) if unpacked.exists() else shutil.which(name)
    if found is None:
        cannot_here(f"there is no {name}: packaging/unpack-prometheus.sh .cache/prometheus gets it")
    return Path(found)


def promtool(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [str(program("promtool")), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
