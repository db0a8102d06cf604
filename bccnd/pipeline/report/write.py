"""The page in its place.

Law: index.html is a whole page at any moment: it is written beside its place and renamed into it, and not touched when
there is no page to write.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Final

from bccnd.errors import PipelineError
from bccnd.pipeline.report.finding import Finding
from bccnd.pipeline.report.findings import findings
from bccnd.pipeline.report.gather import Tables, Wanted, gather
from bccnd.pipeline.report.page import page
from bccnd.pipeline.report.svg import need_matplotlib

NAME: Final = "index.html"


def report(
    where: str,
    out: str,
    *,
    wanted: Wanted | None = None,
    title: str = "",
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[str, list[Finding]]:
    """Make the page of tables; its path, and what it says to look at. Raises PipelineError."""
    need_matplotlib()
    try:
        facts = gather(Tables(where), wanted, progress)
    except PipelineError as error:
        if error.reason != "renewed":
            raise
        facts = gather(Tables(where), wanted, progress)  # a run has just put newer ones in their place
    found = findings(facts)
    progress("drawing")
    return put(out, page(facts, found, title)), found


def put(out: str, text: str) -> str:
    """Raises PipelineError: no_place."""
    path = os.path.join(out, NAME)
    beside = os.path.join(out, f".{NAME}.{os.getpid()}")
    try:
        os.makedirs(out, exist_ok=True)
        try:
            with open(beside, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(beside)
    except OSError as error:
        raise PipelineError(
            "no_place", f"{path} cannot be written: {error.strerror or error}", "name another folder with --out"
        ) from error
    return path
