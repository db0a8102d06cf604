"""Makes the page of a folder of tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bccnd.errors import PipelineError
from bccnd.pipeline import store_files
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
    """The path of the page, and its findings. The page is there as a whole or not at all. Raises PipelineError."""
    try:
        facts = gather(Tables(where), time, progress)
    except PipelineError as error:
        if error.reason != "renewed":
            raise
        facts = gather(Tables(where), time, progress)
    ranked = findings(facts)
    progress("writing the page")
    text = page(facts, ranked, title)
    with store_files.usable(out):
        store_files.Root(out).put(NAME, text)
    return f"{out.rstrip('/')}/{NAME}", ranked
