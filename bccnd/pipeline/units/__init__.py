"""The work on a day and a share of the sources, the same in this process and in a task of Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from bccnd.pipeline.units.combine import run_combine, run_epochs, run_liveness
from bccnd.pipeline.units.survey import run_survey
from bccnd.pipeline.units.unit import run_unit
from bccnd.pipeline.units.verify import run_verify
from bccnd.pipeline.units.work import Task

_KINDS: Mapping[str, Callable[[Task], object]] = {
    "verify": run_verify,
    "survey": run_survey,
    "unit": run_unit,
    "combine": run_combine,
    "epochs": run_epochs,
    "liveness": run_liveness,
}


def run_task(text: str) -> str:
    """Run a task, and return the files that it has written, or found: both as JSON. Raises PipelineError, OSError."""
    task = Task.from_text(text)
    return json.dumps(_KINDS[task.kind](task))
