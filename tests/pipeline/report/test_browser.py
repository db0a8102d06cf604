"""The page in a real browser: nothing is fetched, nothing overflows, everything can be read, also on paper."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bccnd.pipeline.report.finding_checks import run_checks
from bccnd.pipeline.report.html_page import render
from tests.browser import MEASURE, Browser
from tests.pipeline.reporting import EVIL, full
from tests.support import cannot_here

#: sizes of charts, and of the smallest text in them
_CHARTS = """[...document.querySelectorAll('.chart svg')].map(chart => {
  const box = chart.getBoundingClientRect(), texts = [...chart.querySelectorAll('text')];
  return [box.width, box.height, texts.length, Math.min(...texts.map(text => text.getBoundingClientRect().height))];
})"""

#: Chromium takes seconds for each page
slow = pytest.mark.slow


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    facts = full("h01/a-program-with-a-rather-long-name" + EVIL, hosts=20)
    path = tmp_path_factory.mktemp("page") / "index.html"
    path.write_text(render(facts, run_checks(facts))["index.html"])
    return path


@slow
def test_paper(tmp_path: Path, made: Path) -> None:
    if shutil.which("pdftotext") is None:
        cannot_here("there is no pdftotext")
    paper = tmp_path / "page.pdf"
    with Browser() as browser:
        browser.look(dark=True)
        browser.go(made.as_uri())
        printed = browser.ask("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, preferCSSPageSize=True)
    paper.write_bytes(base64.b64decode(printed["data"]))
    text = subprocess.run(["pdftotext", "-layout", str(paper), "-"], capture_output=True, text=True, check=True).stdout
    # what is folded on a screen is open on paper
    assert "Missed here" in text
    assert "34,000" not in text.split("What to look at first")[0]
    assert text.count("\f") <= 9
    sheet = tmp_path / "sheet"
    subprocess.run(["pdftoppm", "-gray", "-r", "20", "-l", "1", str(paper), str(sheet)], check=True)
    *_, pixels = next(tmp_path.glob("sheet*.pgm")).read_bytes().split(maxsplit=4)
    assert sum(pixels) / len(pixels) > 0.75 * 255


@pytest.fixture(scope="module")
def browser(made: Path) -> Iterator[Browser]:
    with Browser() as started:
        started.go(made.as_uri())
        yield started


@slow
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390, 320], ids=["desk", "phone", "small phone"])
def test_everything_fits_and_can_be_read(browser: Browser, width: int, dark: bool) -> None:
    browser.look(width, 2000, dark=dark)
    # Charts and wide tables scroll by themselves.
    seen = browser.see(MEASURE.replace("thead", "thead, .chart, .scroll"))
    assert (seen["scroll"], seen["wide"]) == (width, [])
    assert seen["texts"] > 200
    assert seen["least"][0][0] >= 4.5, seen["least"]
    assert (seen["paper"] < 0.2) is dark
    charts = browser.see(_CHARTS)
    assert len(charts) == 2
    for wide, tall, texts, smallest in charts:
        assert (wide > 250, tall > 30, texts >= 2, smallest > 7) == (True,) * 4


@slow
def test_nothing_is_fetched_and_links_lead_to_folded_rows(browser: Browser, tmp_path: Path, made: Path) -> None:
    assert browser.asked == [made.as_uri()]
    assert browser.see("document.scripts.length") == 0
    # A link to a row that is folded opens it.
    browser.go(f"{made.as_uri()}#matrix-5")
    assert browser.see("document.querySelector('tr:target').getBoundingClientRect().height") > 10
    # The matrix comes along in the page.
    browser.ask("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    browser.see("document.querySelector('a[download=\"matrix.json\"]').click()")
    browser.until(lambda: (tmp_path / "matrix.json").exists(), "the file")
    assert len(json.loads((tmp_path / "matrix.json").read_text())["pairs"]) == 20
    # The policy of the page forbids what it might name, and this test notices.
    strict = tmp_path / "strict.html"
    policy = re.findall("<meta http-equiv[^>]*>", made.read_text())[0]
    strict.write_text(f'{policy}<img src="http://192.0.2.1/y.png"><link rel="stylesheet" href="http://192.0.2.1/">')
    browser.go(strict.as_uri())
    assert sorted(browser.forbidden) == ["http://192.0.2.1/", "http://192.0.2.1/y.png"]
    browser.go(made.as_uri())
