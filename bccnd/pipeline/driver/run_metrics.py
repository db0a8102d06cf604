"""Writes the metrics of a run as a text file for node_exporter's textfile collector."""

from __future__ import annotations

import os
import time
from typing import Final

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

from bccnd.pipeline.driver.build import Outcome

_HELP: Final = {
    "last_success_timestamp_seconds": "When the last run that succeeded had ended, in seconds since 1970.",
    "last_run_seconds": "How long that run took.",
    "lag_seconds": "Age of the newest record in the tables at that time.",
    "days_computed": "Days that it computed.",
    "files_damaged": "Files of the journal, or hosts, that were left out.",
    "files_late": "Files that came after their day was final, and are in no table.",
    "records_missing": "Records that no file of the journal has.",
}


def write_metrics(path: str, outcome: Outcome) -> None:
    """Write the metrics of a run that has just ended; readers see the old file or the new one. Raises OSError."""
    now = time.time()
    values = {
        "last_success_timestamp_seconds": now,
        "last_run_seconds": outcome.seconds,
        "days_computed": len(outcome.days),
        "files_damaged": len(outcome.damaged),
        "files_late": len(outcome.late),
        "records_missing": sum(row.last_rec - row.first_rec + 1 for row in outcome.missing),
    }
    if outcome.newest_us:
        values["lag_seconds"] = max(0.0, now - outcome.newest_us / 1e6)
    registry = CollectorRegistry()
    for name, value in values.items():
        Gauge(f"bccnd_pipeline_{name}", _HELP[name], registry=registry).set(value)
    write_to_textfile(path, registry)
    os.chmod(path, 0o644)  # the collector runs as another user
