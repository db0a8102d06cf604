"""Figures that several pages give are those of the one that has them: docs/comparison.md, as `make bench` prints."""

from __future__ import annotations

import re
from typing import Final

import pytest

from tests.support import ROOT

README: Final = (ROOT / "README.md").read_text()
COMPARISON: Final = (ROOT / "docs/comparison.md").read_text()
_SYSTEMS: Final = ("bccnd", "NATS", "mosquitto", "Redis")


def measured(row: str) -> str:
    """What a row of the table of CPU gives, in us: medians to 1, 8 and 64 clients, as other pages round them."""
    (line,) = re.findall(rf"^\| {re.escape(row)} \|(.*)$", COMPARISON, re.MULTILINE)
    medians = [int(cell.split()[0].replace(",", "")) / 1000 for cell in line.strip(" |").split("|")]
    return ", ".join(f"{us:.1f}" if us < 10 else f"{us:.0f}" for us in medians)


def cells(text: str, row: str) -> list[str]:
    """The cells of a table's row, by how it begins, without the unit."""
    (line,) = re.findall(rf"^\| {re.escape(row)}[^|]*\|(.*)$", text, re.MULTILINE)
    return [cell.strip().replace(" us", "") for cell in line.split("|")]


def test_readme_gives_the_figures_of_the_comparison() -> None:
    assert cells(README, "CPU, full load")[:4] == [measured(system) for system in _SYSTEMS]
    assert cells(README, "the same in batch mode")[0] == measured("bccnd, batch mode")
    quiet = cells(README, "CPU, 2,000 messages a second")
    assert [quiet[0], quiet[3]] == [measured(f"2,000 a second: {system}") for system in ("bccnd", "Redis")]


@pytest.mark.parametrize(("row", "names"), [("full load", _SYSTEMS), ("2,000 a second", ("bccnd", "Redis"))])
def test_the_summary_of_the_comparison_gives_its_figures(row: str, names: tuple[str, ...]) -> None:
    head = "CPU of the server or daemon" if row == "full load" else "CPU for each message at 2,000"
    found = cells(COMPARISON, head)
    prefix = "" if row == "full load" else "2,000 a second: "
    for place, system in enumerate(_SYSTEMS):
        if system in names:
            assert found[place].partition(";")[0] == measured(prefix + system)
    if row == "full load":
        assert found[0].partition("batch mode ")[2] == measured("bccnd, batch mode")
