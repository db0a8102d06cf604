"""The progress of long commands, on standard error; nothing is shown where that is no terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bccnd.cli.shared.output import print_notice


@contextmanager
def show_progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function to call with the bytes done and their total, 0 if that is not known."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(what, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total or None)


@contextmanager
def show_steps(total: int) -> Iterator[Callable[[str], None]]:
    """Yield a function to call with each of ``total`` steps: it shows a bar on a terminal, lines elsewhere."""
    if not sys.stderr.isatty():
        yield lambda step: print_notice(f"{step} ...")
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:<34}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        bar = shown.add_task("", total=total, completed=-1)
        yield lambda step: shown.update(bar, description=step, advance=1)
