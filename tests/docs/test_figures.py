"""Figures of documents are those of docs/figures.json, and what is measured replaces them. That pages are up to date is
in test_reference.py."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from docs import figures, quotes
from docs.figures import Figures, fraction
from docs.site import DOCS, ROOT
from tools.bench import figures as measured
from tools.bench.scale_axes import AXES

KNOWN = Figures()


def test_every_section_says_when_and_where_it_was_measured() -> None:
    assert set(KNOWN.sections) == {"bench", "idle", *(f"scale {axis}" for axis in AXES)}
    for name in KNOWN.sections:
        about = KNOWN.about(name)
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", about["date"]), name
        assert about["machine"]["cpu"], name
        assert about["daemon"]["version"], name


@pytest.mark.parametrize(("axis", "line"), [("clients", "bccnd"), ("clients", "bccnd_batch"), ("burst", "bccnd")])
def test_the_tables_of_scaling_are_of_the_same_run(axis: str, line: str) -> None:
    lines = (DOCS / "scaling.md").read_text().splitlines()
    cells = {word for line in lines if line.startswith("|") for word in re.findall(r"[\d,.]+", line)}
    assert {f"{ns:,}" for ns in KNOWN.sections[f"scale {axis}"]["cpu_ns"][line].values()} <= cells


def test_a_figure_that_changes_is_written_into_every_page_that_quotes_it() -> None:
    sections = json.loads(figures.PATH.read_text())
    sections["bench"]["cpu_ns"]["saturated"]["nats"]["64"] = [31000, 30000, 32000]
    sections["scale clients"]["cpu_ns"]["bccnd"]["1"] = 1990
    changed = Figures(sections)
    for name, expected in {
        "README.md": ["NATS 0.6, 2.0, 31,"],
        "comparison.md": ["31,000 (30,000 to 32,000) x0.38", "least 200,000 messages", "half and an eighth to 64"],
        "questions.md": ["at least 200,000 messages of 150 bytes"],
    }.items():
        text = (ROOT / name if name == "README.md" else DOCS / name).read_text()
        filled = " ".join(quotes.fill(name, text, quotes.quotes(changed)[name]).split())
        assert [one for one in expected if one not in filled] == [], name


def test_a_page_that_has_lost_a_quote_or_has_it_twice_is_an_error() -> None:
    assert (
        quotes.fill("a.md", "It takes 1.2 us\nhere, in all.", ["takes «1.3» us here"])
        == "It takes 1.3 us\nhere, in all."
    )
    for text in ("It costs 1.2 us.", "It takes 1 us here. It takes 2 us here."):
        with pytest.raises(ValueError, match=r"a\.md holds this [02] times"):
            quotes.fill("a.md", text, ["takes «1.3» us here"])


def test_a_whole_run_replaces_a_section_and_a_part_of_one_does_not(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    whole: dict[str, Any] = {
        "about": {"date": "2026-01-01"},
        "cpu_ns": {"bccnd": {"1": [2, 1, 3]}, "nats": {"1": [1, 1, 1]}},
    }
    assert measured.store(file, {"bench": whole}) == []
    part = {"about": {"date": "2026-02-02"}, "cpu_ns": {"bccnd": {"1": [5, 5, 5]}}}
    assert measured.store(file, {"bench": part}) == ["bench: cpu_ns nats 1"]
    assert json.loads(file.read_text()) == {"bench": whole}
    more = {**whole, "cpu_ns": {**whole["cpu_ns"], "redis": {"1": [1, 1, 1]}}}
    assert measured.store(file, {"bench": more, "idle": {"core": 0.001}}) == []
    assert json.loads(file.read_text()) == {"bench": more, "idle": {"core": 0.001}}
    assert '"1": [ 1, 1, 1 ]\n' in file.read_text()


@pytest.mark.parametrize(("share", "words"), [(2 / 3, "half"), (0.29, "a third"), (0.1, "a tenth")])
def test_a_share_is_the_nearest_fraction(share: float, words: str) -> None:
    assert fraction(share) == words


@pytest.mark.parametrize("share", [0.03, 0.8])
def test_a_share_that_its_sentence_does_not_fit_is_refused(share: float) -> None:
    with pytest.raises(ValueError):
        fraction(share)
