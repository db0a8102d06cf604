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
from tools.bench.findings import Findings, Key, Value, cpu, held, of_source, p50

#: sources of a large host
MANY_SOURCES = 100_000

#: innermost lists and objects, which take one line
_SMALL = re.compile(r"[\[{][^\[\]{}]*[\]}]")

Section = dict[str, Any]


def about_run(date: str, machine: Section, daemon: Section, rounds: int) -> Section:
    """Describe when and where figures were measured."""
    about_daemon = {name: daemon.get(name) for name in ("version", "compiled", "python")}
    return {"date": date[:10], "machine": machine, "daemon": about_daemon, "rounds": rounds}


def about(found: Findings) -> Section:
    return about_run(found.date, found.machine, found.daemon, found.rounds)


def sections(found: Findings) -> dict[str, Section]:
    """Return the sections of a run: one for all relays, one for each thing that grows."""
    made: dict[str, Section] = {}
    for key in found.keys:
        relays = key.axis in ("saturated", "paced")
        section = made.setdefault("bench" if relays else f"scale {key.axis}", {"about": about(found), "cpu_ns": {}})
        cost, latency = found.figure(key), found.median(key, p50) if key.axis == "paced" else None
        if cost is not None:
            costs = section["cpu_ns"].setdefault(key.axis, {}) if relays else section["cpu_ns"]
            spread = [round(one) for one in (cost.median, cost.least, cost.most)]
            costs.setdefault(key.line, {})[str(key.x)] = spread if relays else spread[0]
        if latency is not None:
            section.setdefault("p50_us", {}).setdefault(key.line, {})[str(key.x)] = round(latency)
    for axis in found.axes:
        if f"scale {axis.name}" in made and (constants := _constants(found, axis.name)):
            made[f"scale {axis.name}"]["constants"] = constants
    return made


def _constants(found: Findings, axis: str) -> Section:
    values: dict[str, float | None] = {}
    if axis == "clients":
        values["bccnd_each_ns"], values["batch_each_ns"] = _each(found, "bccnd"), _each(found, "bccnd_batch")
        values["client_kib"] = _each(found, "bccnd", lambda sample: sample.rss_kib)
    elif axis == "sources":
        values["source_bytes"] = found.median(Key("sources", "bccnd", MANY_SOURCES), of_source)
    elif axis == "burst":
        values["held_150"] = found.median(Key("burst", "bccnd", 150), held)
    return {name: round(value) for name, value in values.items() if value is not None}


def _each(found: Findings, line: str, value: Value = cpu) -> float | None:
    """What each further client adds: the slope from the fewest clients to the most."""
    known = {x: y for x in found.xs("clients", line) if x and (y := found.median(Key("clients", line, x), value))}
    few, many = min(known, default=0), max(known, default=0)
    return (known[many] - known[few]) / (many - few) if few < many else None


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
