"""How results are written: Markdown tables, JSON, charts, and tables within a page of the documents."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich.console import Console

console: Final = Console(stderr=True, highlight=False, soft_wrap=True)
INK, FAINT = "#30343a", "#e3e6ea"
#: asked of the Python that runs the daemon
QUESTION: Final = """
import json, platform
from importlib.metadata import version
import bccnd.core.receiving.ingress as ingress
print(json.dumps({"version": version("bccnd"), "compiled": ingress.__file__.endswith(".so"),
                  "python": platform.python_version()}))
"""


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def about_machine() -> dict[str, Any]:
    models = re.findall(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    cpu = models[0] if models else platform.machine()
    return {"cpu": cpu, "cores": os.cpu_count(), "kernel": platform.release()}


def about_daemon(program: Path) -> dict[str, Any]:
    """Version of bccnd and of the Python beside it, and whether its core is compiled; null where that does not tell."""
    about: dict[str, Any] = {"program": str(program), "version": None, "compiled": None, "python": None}
    with suppress(OSError, ValueError, subprocess.TimeoutExpired):
        command = [str(program.with_name("python")), "-P", "-c", QUESTION]
        about |= json.loads(subprocess.run(command, capture_output=True, timeout=60, check=False).stdout)
    return about


def about(command: Sequence[str], date: str, machine: dict[str, Any], daemon: dict[str, Any] | None = None) -> str:
    """When and where figures were taken."""
    output = (
        f"`{' '.join(command)}`: {date[:10]}, {machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}"
    )
    if daemon is None:
        return output
    kind = {True: "compiled", False: "not compiled", None: "unknown whether compiled"}[daemon["compiled"]]
    return f"{output}, bccnd {daemon['version'] or '?'} ({kind}), Python {daemon['python'] or '?'}"


def table(head: Iterable[str], rows: Iterable[Iterable[str]], words: int = 0) -> list[str]:
    """The lines of a table; the first ``words`` columns hold words, and the others numbers."""
    columns = list(head)
    rule = "|".join(" --- " if number < words else " ---: " for number in range(len(columns)))
    return [f"| {' | '.join(columns)} |", f"|{rule}|", *(f"| {' | '.join(row)} |" for row in rows)]


def put_into(page: str, results: str) -> tuple[str, list[str]]:
    """Replace the results in a page; also return the beginnings of those for which it has no place.

    A table replaces the one with the same head (the first one the first, and so on), a list the one that begins with
    the same words, and a line that begins with a command the line of the same program. Other text is left out.
    """
    paragraphs = page.removesuffix("\n").split("\n\n")
    places: dict[str, list[int]] = {}
    for number, paragraph in enumerate(paragraphs):
        places.setdefault(_beginning(paragraph), []).append(number)
    missing = []
    for result in results.removesuffix("\n").split("\n\n"):
        beginning = _beginning(result)
        if not beginning:
            continue
        if places.get(beginning):
            paragraphs[places[beginning].pop(0)] = result
        else:
            missing.append(beginning)
    return "\n\n".join(paragraphs) + "\n", missing


def _beginning(paragraph: str) -> str:
    """What a result has in common with the paragraph that it replaces; empty for other text."""
    found = re.match(r"\|.*|- [^:]*:|`python -m [\w.]+(?=[^`]*`: )", paragraph)
    return found[0] if found else ""


def write(
    name: str,
    out: Path,
    found: Any,
    text: str,
    draw: Callable[[Path], bool] = lambda _folder: True,
    docs: Path | None = None,
) -> None:
    """Write NAME.json, NAME.md and the charts to a folder; the tables into a page, and the charts beside it."""
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
    (out / f"{name}.md").write_text(text)
    print(text)
    if not all(draw(folder) for folder in ([out] if docs is None else [out, docs.parent])):
        console.print("no charts: matplotlib is missing (make scale installs it)")
    console.print(f"written to {out}")
    if docs is not None:
        page, missing = put_into(docs.read_text(), text)
        docs.write_text(page)
        console.print(f"and into {docs}" + (f", which has no place for {', '.join(missing)}" if missing else ""))


def chart(
    path: Path, size: tuple[float, float], fill: Callable[[Any], None], settings: Mapping[str, Any] | None = None
) -> bool:
    """Draw a figure as svg, the same file for the same figures; False without matplotlib, which is an extra."""
    try:
        import matplotlib  # type: ignore[import-not-found,unused-ignore]
        from matplotlib.backends.backend_svg import FigureCanvasSVG  # type: ignore[import-not-found,unused-ignore]
        from matplotlib.figure import Figure  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context({"svg.hashsalt": "bccnd"} | dict(settings or {})):
        figure = Figure(figsize=size)
        FigureCanvasSVG(figure)
        fill(figure)
        figure.set_layout_engine("constrained")
        figure.savefig(path, facecolor="white", metadata={"Date": None, "Creator": None})
    return True


def bare(panel: Any, *sides: str) -> None:
    """Hide the lines at these sides of a panel, and keep its grid behind what is drawn."""
    panel.set_axisbelow(True)
    for side in sides:
        panel.spines[side].set_visible(False)
