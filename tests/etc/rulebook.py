"""The rules and the dashboard, as they stand in etc."""

from __future__ import annotations

import json
from typing import Any, Final

import yaml

from tests.support import ROOT

FOLDER: Final = ROOT / "etc/prometheus"
RULES: Final = FOLDER / "bccnd.rules.yml"
DASHBOARD: Final = ROOT / "etc/grafana/bccnd.json"
#: labels that Prometheus gives to every series
TARGET: Final = {"job", "instance"}
#: metrics that Prometheus makes itself, of targets and of rules
OWN: Final = {"up", "scrape_duration_seconds", "ALERTS", "ALERTS_FOR_STATE"}

#: with libyaml, if it is there: each test process reads these files
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

rules: Final[list[dict[str, Any]]] = [
    rule for group in yaml.load(RULES.read_text(), _LOADER)["groups"] for rule in group["rules"]
]
alerts: Final = [rule for rule in rules if "alert" in rule]
#: what is recorded, and of what
records: Final[dict[str, str]] = {rule["record"]: rule["expr"] for rule in rules if "record" in rule}
dashboard: Final[dict[str, Any]] = json.loads(DASHBOARD.read_text())


def shown() -> list[str]:
    """Every expression of the dashboard, its variables put in as they are when all is chosen."""
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    found += [one["expr"] for one in dashboard["annotations"]["list"] if "expr" in one]
    for name in ("job", "instance", "recorder"):
        found = [expression.replace(f"${name}", ".+") for expression in found]
    return found
