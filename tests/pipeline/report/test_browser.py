"""The page in a real browser: nothing is fetched, nothing overflows, everything can be read, also on paper."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from bccnd.pipeline.report.findings import findings
from bccnd.pipeline.report.page import render_page
from tests.browser import QUIET, Browser, find_browser
from tests.pipeline.reporting import EVIL, full
from tests.support import cannot_here

DARK = ("--blink-settings=preferredColorScheme=0",)

#: looks at a page from outside, since it runs nothing itself
_LOOK = """<!DOCTYPE html><meta charset="utf-8"><meta name="color-scheme" content="light dark">
<style>body{margin:0} iframe{border:0;width:%(width)dpx;height:2000px}</style>
<iframe srcdoc="%(page)s"></iframe><pre id="found"></pre>
<script>
function rgb(text) {
  const found = text.match(/[0-9.]+/g).map(Number);
  return found.length < 4 ? [...found, 1] : found;
}
function light(colour) {
  const linear = one => one <= .03928 ? one / 12.92 : ((one + .055) / 1.055) ** 2.4;
  const [r, g, b] = colour.map(one => linear(one / 255));
  return .2126 * r + .7152 * g + .0722 * b;
}
function behind(node) {
  for (; node; node = node.parentElement) {
    const colour = rgb(getComputedStyle(node).backgroundColor);
    if (colour[3] === 1) return colour;
  }
  return [255, 255, 255, 1];
}
document.querySelector('iframe').onload = event => {
  const inner = event.target.contentDocument, top = inner.documentElement, texts = [];
  const walk = inner.createTreeWalker(inner.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode.parentElement, style = getComputedStyle(node);
    if (!walk.currentNode.data.trim() || node.closest('title')) continue;
    const ink = light(rgb(node.closest('svg') ? style.fill : style.color)), paper = light(behind(node));
    texts.push([(Math.max(ink, paper) + .05) / (Math.min(ink, paper) + .05), walk.currentNode.data.trim()]);
  }
  texts.sort((one, other) => one[0] - other[0]);
  const wide = [...inner.querySelectorAll('body *')].filter(node =>
    node.getBoundingClientRect().right > top.clientWidth + 1 && !node.closest('.chart, .scroll'));
  document.getElementById('found').textContent = JSON.stringify({
    client: top.clientWidth, scroll: top.scrollWidth, texts: texts.length, least: texts.slice(0, 3),
    wide: wide.map(node => node.outerHTML.slice(0, 80)),
    charts: [...inner.querySelectorAll('.chart svg')].map(one => {
      const box = one.getBoundingClientRect();
      const sizes = [...one.querySelectorAll('text')].map(text => text.getBoundingClientRect().height);
      return [box.width, box.height, sizes.length, Math.min(...sizes)];
    }),
    scripts: inner.scripts.length,
  });
};
</script>"""


#: Chromium takes seconds for each page
slow = pytest.mark.slow


@pytest.fixture(scope="module")
def browser() -> str:
    return find_browser()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    facts = full("h01/a-program-with-a-rather-long-name" + EVIL, hosts=20)
    path = tmp_path_factory.mktemp("page") / "index.html"
    path.write_text(render_page(facts, findings(facts)))
    return path


def browse(browser: str, place: Path, target: Path, *flags: str) -> str:
    """Run a browser without a window, whose only way to a network is a proxy that does not serve."""
    offline = ("--proxy-server=127.0.0.1:1", "--proxy-bypass-list=<-loopback>")
    command = [browser, *QUIET, *offline, f"--user-data-dir={place / 'profile'}", *flags, target.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def look(browser: str, place: Path, made: Path, width: int, flags: Sequence[str] = ()) -> dict[str, Any]:
    """What can be measured of the page in a window of that width."""
    outside = place / "outside.html"
    outside.write_text(_LOOK % {"width": width, "page": html.escape(made.read_text())})
    text = browse(browser, place, outside, "--dump-dom", f"--window-size={max(width, 500)},2000", *flags)
    match = re.search(r'<pre id="found">(.*?)</pre>', text, re.DOTALL)
    assert match, text[-500:]
    measured: dict[str, Any] = json.loads(html.unescape(match[1]))
    return measured


@slow
@pytest.mark.parametrize(
    ("width", "flags"),
    [(1280, ()), (390, ()), (390, DARK), (320, ())],
    ids=["desk", "phone", "dark phone", "small phone"],
)
def test_everything_fits_and_can_be_read(
    browser: str, tmp_path: Path, made: Path, width: int, flags: tuple[str, ...]
) -> None:
    seen = look(browser, tmp_path, made, width, flags)
    assert seen["client"] == width
    assert seen["scroll"] == width, seen["wide"]
    assert seen["wide"] == []
    assert seen["scripts"] == 0
    assert len(seen["charts"]) == 2
    for wide, tall, texts, smallest in seen["charts"]:
        assert wide > 250
        assert tall > 30
        assert texts >= 2
        assert smallest > 7
    assert seen["texts"] > 200
    assert seen["least"][0][0] >= 4.5, seen["least"]


def contrast(colour: str, background: str) -> float:
    def light(colour: str) -> float:
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        r, g, b = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    first, second = sorted((light(colour), light(background)))
    return (second + 0.05) / (first + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_figures_can_be_read_on_their_cells_and_cells_differ(theme: int) -> None:
    style = render_page(full(), []).split("<style>")[1]
    part = style.split("prefers-color-scheme: dark")[theme].split("* {")[0]
    colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", part))
    for level in range(6):
        assert contrast(colours[f"t{level}"], colours[f"h{level}"]) >= 4.4, level
    # adjacent levels differ by lightness alone, for readers who see no colours and on a grey printer
    steps = [contrast(colours["paper"], colours[f"h{level}"]) for level in range(6)]
    assert steps[1:] == sorted(steps[1:])
    assert all(later / earlier > 1.2 for earlier, later in pairwise(steps[1:]))


@slow
def test_nothing_is_fetched_and_links_lead_to_folded_rows(tmp_path: Path, made: Path) -> None:
    with Browser() as browser:
        browser.go(made.as_uri())
        assert browser.asked == [made.as_uri()]
        # A link to a row that is folded opens it.
        browser.go(f"{made.as_uri()}#matrix-5")
        assert browser.see("document.querySelector('tr:target').getBoundingClientRect().height") > 10
        # The policy of the page forbids what it might name, and this test notices.
        strict = tmp_path / "strict.html"
        policy = re.findall("<meta http-equiv[^>]*>", made.read_text())[0]
        strict.write_text(f'{policy}<img src="http://192.0.2.1/y.png"><link rel="stylesheet" href="http://192.0.2.1/">')
        browser.go(strict.as_uri())
        assert sorted(browser.forbidden) == ["http://192.0.2.1/", "http://192.0.2.1/y.png"]


@slow
def test_paper(browser: str, tmp_path: Path, made: Path) -> None:
    if shutil.which("pdftotext") is None:
        cannot_here("there is no pdftotext")
    paper = tmp_path / "page.pdf"
    browse(browser, tmp_path, made, f"--print-to-pdf={paper}", "--no-pdf-header-footer", *DARK)
    text = subprocess.run(["pdftotext", "-layout", str(paper), "-"], capture_output=True, text=True, check=True).stdout
    # what is folded on a screen is open on paper
    assert "Missed here" in text
    assert "34,000" not in text.split("What to look at first")[0]
    assert text.count("\f") <= 9
    sheet = tmp_path / "sheet"
    subprocess.run(["pdftoppm", "-gray", "-r", "20", "-l", "1", str(paper), str(sheet)], check=True)
    _, width, height, _, pixels = next(tmp_path.glob("sheet*.pgm")).read_bytes().split(maxsplit=4)
    assert sum(pixels) / len(pixels) > 0.75 * 255
    assert round(int(height) / int(width), 2) == 1.41
