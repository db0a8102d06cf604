"""Writes what was measured into docs/figures.json, which documents quote.

Invariant: a section is of one run. One that does not have every figure of the section that is there replaces nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tools.bench.document import console
from tools.bench.findings import Findings, Key, held, of_source, p50
from tools.bench.scale_report import MANY_SOURCES, fit_of, of_client

#: innermost lists and objects, which take one line
_SMALL = re.compile(r"[\[{][^\[\]{}]*[\]}]")

Section = dict[str, Any]


def about_run(date: str, machine: Section, daemon: Section, rounds: int) -> Section:
    """Describe when and where figures were measured."""
    about_daemon = {name: daemon.get(name) for name in ("version", "compiled", "python")}
    return {"date": date[:10], "machine": machine, "daemon": about_daemon, "rounds": rounds}


def about(found: Findings) -> Section:
    return about_run(found.date, found.machine, found.daemon, found.rounds)


def of_bench(found: Findings) -> dict[str, Section]:
    """Return the sections of `make bench`."""
    costs: Section = {}
    latencies: Section = {}
    for key in found.keys:
        if (cost := found.figure(key)) is not None:
            spread = [round(one) for one in (cost.median, cost.least, cost.most)]
            costs.setdefault(key.axis, {}).setdefault(key.line, {})[str(key.x)] = spread
        latency = found.median(key, p50) if key.axis == "paced" else None
        if latency is not None:
            latencies.setdefault(key.line, {})[str(key.x)] = round(latency)
    return {"bench": {"about": about(found), "cpu_ns": costs, "p50_us": latencies}}


def of_scale(found: Findings) -> dict[str, Section]:
    """Return the sections of `make scale`, one for each axis."""
    sections: dict[str, Section] = {}
    for axis in found.axes:
        costs: Section = {}
        for key in found.keys:
            if key.axis == axis.name and (median := found.median(key)) is not None:
                costs.setdefault(key.line, {})[str(key.x)] = round(median)
        section: Section = {"about": about(found), "cpu_ns": costs}
        if constants := _constants(found, axis.name):
            section["constants"] = constants
        sections[f"scale {axis.name}"] = section
    return sections


def _constants(found: Findings, axis: str) -> Section:
    values: dict[str, float | None] = {}
    if axis == "clients":
        packet, batch = fit_of(found, "bccnd"), fit_of(found, "bccnd_batch")
        values["bccnd_each_ns"], values["batch_each_ns"] = packet and packet.each, batch and batch.each
        values["client_kib"] = of_client(found)
    elif axis == "sources":
        values["source_bytes"] = found.median(Key("sources", "bccnd", MANY_SOURCES), of_source)
    elif axis == "burst":
        values["held_150"] = found.median(Key("burst", "bccnd", 150), held)
    return {name: round(value) for name, value in values.items() if value is not None}


def dumps(sections: Mapping[str, Section]) -> str:
    """Write sections as JSON, a line for each row of figures."""
    text = json.dumps(sections, indent=1)
    return _SMALL.sub(lambda found: re.sub(r"\s*\n\s*", " ", found[0]), text) + "\n"


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
    path.write_text(dumps(sections))
    return missing


def write(path: Path, measured: Mapping[str, Section]) -> None:
    """Store what was measured, and say what was and what was not."""
    missing = store(path, measured)
    console.print(f"and into {path}; python -m docs --write takes it into the documents")
    for one in missing:
        console.print(f"but not a section that this run has not measured as a whole: {one}")
