"""Runs tasks in this process: DuckDB uses all processors for each, and nothing else has to be installed or started."""

from __future__ import annotations

from collections.abc import Sequence

from bccnd.pipeline.driver.runner import opened, run_enclosed


class EmbeddedRunner:
    """Runs one task after the other."""

    tasks = 1

    def run(self, tasks: Sequence[str]) -> list[str]:
        return [opened(run_enclosed(task)) for task in tasks]
