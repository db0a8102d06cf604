"""The generated parts of documents are up to date, and are made from what they describe."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs import __main__ as generator
from docs import reference, site
from tests.html_reader import HtmlReader

MANUAL = reference.MANUAL.read_text()


def test_the_generated_parts_are_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert generator.main(["--check"]) == 0, capsys.readouterr().err


def test_each_key_has_a_row() -> None:
    rows = re.findall(r"^\| `([a-z._]+)` \|", reference.page(MANUAL), re.MULTILINE)
    assert sorted(rows) == sorted(key.path for key in list(reference.keys()))


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
