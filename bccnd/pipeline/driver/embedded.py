"""Runs tasks in this process: DuckDB uses all processors for each, and nothing else has to be installed or started."""

from __future__ import annotations

import os
from collections.abc import Sequence

from bccnd.pipeline.driver.runner import opened, run_enclosed


class EmbeddedRunner:
    """Runs one task after the other; ``memory_mb`` is what DuckDB may use, by default half of what this machine has."""

    remote = False
    tasks = 1
    threads = os.cpu_count() or 1

    def __init__(self, memory_mb: int | None = None) -> None:
        self.memory_mb = memory_mb or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 21

    def run(self, tasks: Sequence[str]) -> list[str]:
        try:
            return [opened(run_enclosed(task)) for task in tasks]
        except RuntimeError as error:
            # DuckDB takes SIGINT for itself while it works.
            if str(error) != "Query interrupted":
                raise
            raise KeyboardInterrupt from error
