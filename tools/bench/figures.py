"""The figures of a bench: docs/figures.json is their only home, and the tables are printed from them.

A section is of one axis, measured in one run: ``{figure: {line: {x: value}}}``. One that does not have every figure of
the section that is there replaces nothing.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, Final

from tools.bench.axes import Axis, Point
from tools.bench.measure import Figures

#: asked of the Python that runs the daemon
QUESTION: Final = """
import json, platform
from importlib.metadata import version
import bccnd.core.receiving.ingress as ingress
print(json.dumps({"version": version("bccnd"), "compiled": ingress.__file__.endswith(".so"),
                  "python": platform.python_version()}))
"""
#: innermost lists and objects, which take one line
_SMALL: Final = re.compile(r"[\[{][^\[\]{}]*[\]}]")

Section = dict[str, Any]


def about_run(daemon: Path, rounds: int) -> Section:
    """Describe when and where figures are measured."""
    models = re.findall(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    machine = {
        "cpu": models[0] if models else platform.machine(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
    }
    asked = [str(daemon.with_name("python")), "-P", "-c", QUESTION]
    try:
        answer = json.loads(subprocess.run(asked, capture_output=True, timeout=60, check=False).stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        answer = {"version": None, "compiled": None, "python": None}
    date = datetime.now(UTC).date().isoformat()
    return {"date": date, "machine": machine, "daemon": answer, "rounds": rounds}


def section_of(axis: Axis, runs: Mapping[Point, Sequence[Figures]], about: Section) -> Section:
    """Return the medians of all runs of an axis, and the range of the costs."""
    section: Section = {"about": about}

    def add(name: str, line: str, x: int, value: object) -> None:
        section.setdefault(name, {}).setdefault(line, {})[str(x)] = value

    for point, found in runs.items():
        names = [name for name in found[0] if name not in ("lost", "bad")] if found else []
        for name in names:
            values = [rounded(one[name]) for one in found]
            if name == "first_ns":
                if point.first:
                    add("cpu_ns", point.first, point.x, median(values))
                continue
            if name in {shown.name for shown in axis.shown}:
                add(name, point.line, point.x, rounded(median(values)))
            if name == axis.shown[0].name:
                add("range", point.line, point.x, [min(values), max(values)])
    if axis.name == "clients":
        section["constants"] = {
            "bccnd_each_ns": slope(section, "cpu_ns", "bccnd"),
            "batch_each_ns": slope(section, "cpu_ns", "bccnd_batch"),
            "client_kib": slope(section, "resident_mb", "bccnd", 1e6 / 1024),
        }
    return section


def rounded(value: float) -> float:
    return round(value) if abs(value) >= 100 else round(value, 4)


def slope(section: Section, figure: str, line: str, unit: float = 1.0) -> float | None:
    """Return what each further client adds, from the fewest clients to the most."""
    known = {int(x): value for x, value in section.get(figure, {}).get(line, {}).items() if int(x)}
    few, many = min(known, default=0), max(known, default=0)
    return round((known[many] - known[few]) / (many - few) * unit, 2) if few < many else None


def tables(axis: Axis, section: Section) -> Iterator[str]:
    """Yield the lines of the tables of an axis: a row for each x, a column for each line that has figures."""
    for shown in axis.shown:
        values = section.get(shown.name, {})
        lines = [line for line in axis.lines if line.name in values]
        if not lines:
            continue
        rows = []
        for x in sorted({int(x) for line in lines for x in values[line.name]}):
            cells = []
            for line in lines:
                value = values[line.name].get(str(x))
                beside = values.get(line.floor, {}).get(str(x)) if shown is axis.shown[0] else None
                ratio = f" x{value / beside:.2f}" if value and beside and line.floor != line.name else ""
                cells.append("" if value is None else f"{value:{shown.form}}{ratio}")
            rows.append([axis.labels[x] if axis.labels else f"{x:,}", *cells])
        yield from ("", f"**{axis.title}: {shown.title}**", "")
        yield from table([axis.x, *(line.title for line in lines)], rows, words=int(axis.labels is not None))


def table(head: Iterable[str], rows: Iterable[Iterable[str]], words: int = 0) -> list[str]:
    """Return the lines of a table; the first ``words`` columns hold words, and the others numbers."""
    columns = list(head)
    rule = "|".join(" --- " if number < words else " ---: " for number in range(len(columns)))
    return [f"| {' | '.join(columns)} |", f"|{rule}|", *(f"| {' | '.join(row)} |" for row in rows)]


def described(command: Sequence[str], about: Section) -> str:
    """Return when and where figures were measured, for a reader."""
    machine, daemon = about["machine"], about["daemon"]
    kind = {True: "compiled", False: "not compiled", None: "unknown whether compiled"}[daemon["compiled"]]
    return (
        f"`{' '.join(command)}`: {about['date']}, {machine['cpu']}, {machine['cores']} cores, Linux "
        f"{machine['kernel']}, bccnd {daemon['version']} ({kind}), Python {daemon['python']}; medians of "
        f"{about['rounds']} interleaved rounds; x is the multiple of the floor"
    )


def _paths(value: Any, path: tuple[str, ...] = ()) -> Iterable[tuple[str, ...]]:
    if isinstance(value, dict):
        for name, one in value.items():
            yield from _paths(one, (*path, name))
    else:
        yield path


def store(path: Path, measured: Mapping[str, Section]) -> list[str]:
    """Replace sections of the file by those that were measured; return what kept others from being replaced."""
    sections: dict[str, Section] = json.loads(path.read_text()) if path.exists() else {}
    missing = []
    for name, section in measured.items():
        lacks = sorted(set(_paths(sections.get(name, {}))) - set(_paths(section)))
        if lacks:
            missing.append(f"{name}: {' '.join(lacks[0])}")
        else:
            sections[name] = section
    text = json.dumps(sections, indent=1)
    path.write_text(_SMALL.sub(lambda found: re.sub(r"\s*\n\s*", " ", found[0]), text) + "\n")
    return missing
