"""The generated parts of documents are up to date, and are made from what they describe."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs import __main__ as generator
from docs import defaults, figures, metrics, quotes, reference, site
from tests.html_reader import HtmlReader

MANUAL = reference.MANUAL.read_text()


def test_the_generated_parts_are_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert generator.main(["--check"]) == 0, capsys.readouterr().err


def test_outdated_parts_are_named_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(site.DOCS, tmp_path / "docs", ignore=shutil.ignore_patterns("*.py", "*.svg", "*.png", "__*"))
    shutil.copy(site.ROOT / "README.md", tmp_path)
    manual = tmp_path / "bccnd.yaml.5"
    manual.write_text(MANUAL.replace("max_datagram Pq 1500", "max_datagram Pq 1400"))
    monkeypatch.setattr(site, "ROOT", tmp_path)
    monkeypatch.setattr(site, "DOCS", tmp_path / "docs")
    monkeypatch.setattr(reference, "MANUAL", manual)
    assert generator.main(["--check"]) == 1
    assert generator.main(["--write"]) == 0
    assert generator.main(["--check"]) == 0
    assert manual.read_text() == MANUAL


def test_a_key_without_an_entry_or_the_reverse_is_an_error() -> None:
    for page in (MANUAL.replace(".It Cm names Pq any\n", ""), MANUAL + ".It Cm tea Pq 1\n"):
        with pytest.raises(ValueError, match=r"names|tea"):
            defaults.filled(page)


def test_each_key_has_a_row() -> None:
    rows = re.findall(r"^\| `([a-z._]+)` \|", reference.page(MANUAL), re.MULTILINE)
    assert sorted(rows) == sorted(key.path for key in list(reference.keys()))


def test_a_metric_without_anything_to_do_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(metrics._ACTIONS, "deliveries")
    with pytest.raises(ValueError, match="bccnd_deliveries"):
        metrics.page()


def test_a_new_figure_is_written_where_it_is_quoted() -> None:
    sections = json.loads(figures.PATH.read_text())
    sections["saturated"]["cpu_ns"]["nats"]["64"] = 31000
    sections["saturated"]["range"]["nats"]["64"] = [30000, 32000]
    text = (site.DOCS / "comparison.md").read_text()
    filled = quotes.fill("comparison.md", text, quotes.quotes(figures.Figures(sections))["comparison.md"])
    assert "31,000 (30,000 to 32,000)" in filled


def test_a_quote_that_a_page_lacks_or_has_twice_is_an_error() -> None:
    for text in ("It costs 1.2 us.", "It takes 1 us here. It takes 2 us here."):
        with pytest.raises(ValueError, match=r"a\.md holds this [02] times"):
            quotes.fill("a.md", text, ["takes «1.3» us here"])


def test_the_site_is_laid_out_without_the_package(tmp_path: Path) -> None:
    without = "import sys, pathlib; sys.modules['bccnd'] = None; from docs import site"
    code = f"{without}; site.stage(pathlib.Path({str(tmp_path / 'source')!r}))"
    subprocess.run([sys.executable, "-c", code], cwd=site.ROOT, check=True)
    readme = (tmp_path / "source/index.md").read_text()
    assert readme.startswith("# bccnd\n")
    assert "(docs/" not in readme


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_site_is_whole_and_fetches_nothing_from_elsewhere(tmp_path: Path) -> None:
    built = tmp_path / "html"
    # Any warning of Sphinx, also about a link or an anchor, is a failure.
    assert site.build(built, tmp_path / "source") == 0
    pages = sorted(built.rglob("*.html"))
    assert {name.replace(".md", ".html") for name in site.documents()} <= {page.name for page in pages}
    assert "Try it" in (built / "index.html").read_text()
    for page in pages:
        for edited in re.findall(r'href="([^"]*)" rel="edit"', page.read_text()):
            assert (site.ROOT / edited.partition("/edit/main/")[2]).exists(), edited
        for tag, attributes in HtmlReader(page.read_text()).found:
            sources = [attributes.get("src", ""), attributes.get("href", "") if tag == "link" else ""]
            for target in filter(None, (*sources, attributes.get("href", ""))):
                assert re.match(r"[a-z]+:|#", target) or (page.parent / re.split(r"[?#]", target)[0]).exists(), target
            assert not [one for one in sources if re.match(r"(?:https?:)?//", one)], page
    for path in (*built.rglob("*.css"), *built.rglob("*.js")):
        assert not re.search(r"""(?:url\(|@import|fetch\()\s*['"]?(?:https?:)?//""", path.read_text()), path
