"""Runs tasks in this process: DuckDB uses all processors for each, and nothing else has to be installed or started."""

from __future__ import annotations

import os
from collections.abc import Sequence

from bccnd.pipeline.driver.runner import opened, run_enclosed


class EmbeddedRunner:
    """Runs one task after the other."""

    tasks = 1
    threads = os.cpu_count() or 1

    @property
    def memory_mb(self) -> int:
        """Half of what this machine has."""
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 21

    def run(self, tasks: Sequence[str]) -> list[str]:
        return [opened(run_enclosed(task)) for task in tasks]
