"""Runs a task in whatever process it is in, and hands over its answer or its error."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from bccnd.errors import PipelineError
from bccnd.pipeline.inputs.file_checks import changed
from bccnd.pipeline.units import run_task

_JOURNAL_FILE: Final = re.compile(r"obs/host=[^/\s]+/day=[^/\s]+/[^/\s]+\.parquet")
_NOT_THERE: Final = re.compile("No files found|No such file|does not exist|Path does not exist")


def run_enclosed(text: str) -> str:
    """Run a task, and enclose what comes of it: errors cross the border of a process with their reason."""
    try:
        return json.dumps({"result": run_task(text)})
    except PipelineError as error:
        return json.dumps({"error": [error.reason, error.detail, error.remedy]})
    except Exception as error:
        # DuckDB, Arrow and Python have nothing in common here but words.
        file = _JOURNAL_FILE.search(f"{getattr(error, 'filename', '')} {error}")
        if file is None or not _NOT_THERE.search(str(error)):
            raise
        lost = changed(file[0])
        return json.dumps({"error": [lost.reason, lost.detail, lost.remedy]})


def opened(text: str) -> str:
    """What `run_enclosed` has enclosed. Raises PipelineError."""
    enclosed: dict[str, Any] = json.loads(text)
    if "error" in enclosed:
        raise PipelineError(*enclosed["error"])
    return str(enclosed["result"])
