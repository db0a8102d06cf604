"""Pictures of what `make demo` prints: they are made of a real run, and fetch nothing from elsewhere."""

from __future__ import annotations

import html
import re
import shutil
from pathlib import Path

import pytest

from docs import stills
from docs.site import DOCS
from examples import demo
from tests.support import cannot_here


def words(picture: Path) -> str:
    """The text of a picture."""
    text = re.sub(r"<style>.*?</style>", "", picture.read_text(), flags=re.DOTALL)
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", text)).split())


def check(folder: Path) -> None:
    assert "bccnd_datagrams_total" in words(folder / "demo-checks.svg")
    fleet = words(folder / "demo-fleet.svg")
    assert re.search(r"demo02 loses .* of what relay02 sends", fleet)
    assert "13. 400 readings" in fleet
    for name in stills.STILLS:
        picture = (folder / f"demo-{name}.svg").read_text()
        assert re.findall(r"https?://[^\s\"']+", picture) == ["http://www.w3.org/2000/svg"]


def test_the_documents_have_the_pictures() -> None:
    check(DOCS)


def test_the_pictures_are_made_of_a_run_of_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("cc") is None or shutil.which("socat") is None:
        cannot_here("the demo needs cc and socat")
    monkeypatch.setattr(demo, "console", demo.console)
    monkeypatch.setattr(demo, "print_step", demo.print_step)
    stills.write(tmp_path)
    check(tmp_path)
