"""Results of measurements have their places in the documents. That they are measured is in tests/e2e."""

from __future__ import annotations

import re
from typing import Any

import pytest

from docs.site import DOCS
from tools.bench import document, mesh_report, scale_report
from tools.bench.findings import Findings
from tools.bench.measure import Rules, Sample
from tools.bench.mesh import SEGMENTS
from tools.bench.mesh_topology import ALL
from tools.bench.scale_axes import AXES

MACHINE = {"cpu": "any", "cores": 1, "kernel": "any"}
DAEMON = {"version": "1", "compiled": True, "python": "3"}


def of_scale() -> str:
    """Results of all axes, made up."""
    lines = {
        (axis.name, line, point.x)
        for axis in AXES.values()
        for point in axis.points(False)
        for line in (point.line, point.first)
        if line
    }
    samples = [
        Sample(axis, line, x, 1, fan_out=1.0, held=1, cpu_ns=1e3 + x, sender_ns=1.0, clients_ns=1.0, rss_kib=1 + x)
        for axis, line, x in sorted(lines)
    ]
    axes = list(AXES.values())
    command = ["python", "-m", "tools.bench.scale"]
    return scale_report.markdown(Findings(command, DAEMON, Rules(), 1, axes, samples, {}, {}, MACHINE, "2026-01-01"))


def of_mesh() -> str:
    names = ("link_messages", "busiest", "capacity", "hops", "seconds", "datagrams", "datagrams_expected", "copies")
    model = [
        {"topology": shape, "segments": segments, "bridges": bridges, **dict.fromkeys(names, 1)}
        for shape in ALL
        for segments in SEGMENTS
        for bridges in (1, 2)
    ]
    costs = dict.fromkeys(("heard", "passed", "linked", "brought", "broadcast"), 1.0)
    losses = [{"topology": "any", "bridges": 1, "lost": 0.01, "drop": 0.0, "deliver": 0.0}]
    found: dict[str, Any] = {"date": "2026-01-01", "machine": MACHINE, "costs": {"seconds": costs}}
    return mesh_report.markdown(found | {"model": model, "losses": losses})


@pytest.mark.parametrize(("page", "results", "tables"), [("scaling.md", of_scale(), 3), ("mesh.md", of_mesh(), 1)])
def test_the_measured_tables_of_a_page_are_replaced_by_the_next_run(page: str, results: str, tables: int) -> None:
    text = (DOCS / page).read_text()
    written, missing = document.put_into(text, results)
    parts = [part.rstrip("\n") for part in re.findall(r"^(?:[|-] .*\n)+|^`python.*", results, re.MULTILINE)]
    placed = [part for part in parts if part.startswith("|") and part.partition("\n")[0] not in missing]
    assert len(placed) == tables
    assert [part for part in placed if part not in written or part in text] == []
    assert re.findall("^#.*", written, re.MULTILINE) == re.findall("^#.*", text, re.MULTILINE)
    assert document.put_into(written, results)[0] == written


def test_what_has_no_place_is_named_and_the_page_stays() -> None:
    page = "# A page\n\n| a |\n| --- |\n| 1 |\n\n## Two\n\n| b |\n| --- |\n| 1 |\n\nbehind\n"
    filled = page.replace("| b |\n| --- |\n| 1 |", "| b |\n| --- |\n| 2 |")
    assert document.put_into(page, "new\n\n| b |\n| --- |\n| 2 |\n\n- c: 1\n") == (filled, ["- c:"])
    assert document.put_into(page, "| b |\n| 2 |\n\n| b |\n| 3 |\n")[1] == ["| b |"]
