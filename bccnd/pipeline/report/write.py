"""Makes the page of a folder of tables and puts it in place by a rename, so that index.html is always whole."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Final

from bccnd.errors import PipelineError
from bccnd.pipeline.report.finding import Finding
from bccnd.pipeline.report.findings import findings
from bccnd.pipeline.report.gather import gather
from bccnd.pipeline.report.page import page
from bccnd.pipeline.report.table_reader import Tables, TimeRange

NAME: Final = "index.html"


def report(
    where: str,
    out: str,
    *,
    time: TimeRange | None = None,
    title: str = "",
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[str, list[Finding]]:
    """The path of the page, and its findings. Raises PipelineError."""
    try:
        facts = gather(Tables(where), time, progress)
    except PipelineError as error:
        if error.reason != "renewed":
            raise
        facts = gather(Tables(where), time, progress)
    ranked = findings(facts)
    progress("writing the page")
    return put(out, page(facts, ranked, title)), ranked


def put(out: str, text: str) -> str:
    """Raises PipelineError: no_place."""
    path, unfinished = (os.path.join(out, name) for name in (NAME, f".{NAME}.{os.getpid()}"))
    try:
        os.makedirs(out, exist_ok=True)
        try:
            with open(unfinished, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(unfinished)
    except OSError as error:
        raise PipelineError(
            "no_place", f"{path} cannot be written: {error.strerror or error}", "name another folder with --out"
        ) from error
    return path
