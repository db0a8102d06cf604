"""The site that is made of the documents: whole, without a resource from elsewhere, each page to be found."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

import pytest

from docs import site
from tests.browser import find_browser
from tests.html_reader import HtmlReader
from tests.support import ROOT

#: attributes by which a browser fetches something
FETCHING = {"src", "srcset", "poster", "data", "action", "background"}


class Page:
    """What a page fetches, its links, and the texts of its images."""

    def __init__(self, path: Path) -> None:
        self.path = path
        found = HtmlReader(path.read_text()).found
        self.alts = [attributes.get("alt", "") for tag, attributes in found if tag == "img"]
        self.links = [attributes["href"] for tag, attributes in found if tag != "link" and attributes.get("href")]
        self.fetches = [
            *(attributes["href"] for tag, attributes in found if tag == "link" and attributes.get("href")),
            *(value for _, attributes in found for name, value in attributes.items() if name in FETCHING and value),
            *(one for _, attributes in found for one in re.findall(r"url\(([^)]*)\)", attributes.get("style", ""))),
        ]


def lost(pages: Iterable[Page]) -> list[tuple[str, str]]:
    """Files that pages point to and that there are not; of anchors Sphinx warns."""
    pointed = [(page, one) for page in pages for one in (*page.links, *page.fetches) if not re.match(r"[a-z]+:", one)]
    targets = [(page.path, re.split(r"[?#]", one)[0]) for page, one in pointed]
    return [(path.name, one) for path, one in targets if not (path.parent / one).exists()]


def elsewhere(text: str) -> list[str]:
    """The addresses that a browser would fetch by a style or a script."""
    found = re.findall(r"""(?:url\(|@import|import\s*\(|fetch\(|\bfrom)\s*['"]?((?:https?:)?//[^'")\s]+)""", text)
    return [one for one in found if "www.w3.org" not in one]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_site_is_whole_and_fetches_nothing_from_elsewhere(tmp_path: Path) -> None:
    built = tmp_path / "html"
    # Any warning, also about a link or an anchor, is a failure.
    assert site.build(built, tmp_path / "source") == 0
    pages = {str(path.relative_to(built)): Page(path) for path in sorted(built.rglob("*.html"))}
    documents = {name.replace(".md", ".html") for name in site.documents()}
    assert documents | {"readme.html", "search.html"} <= set(pages)
    links = {one.partition("#")[0] for one in pages["links.html"].links}
    assert documents - links == {"links.html"}
    assert sum(len(page.links) for page in pages.values()) > 1000
    assert lost(pages.values()) == []
    alts = [alt for page in pages.values() for alt in page.alts]
    assert alts
    assert min(map(len, alts)) > 12
    for name, page in pages.items():
        assert [one for one in page.fetches if re.match(r"(?:[a-z]+:)?//|https?:", one)] == [], name
        inline = re.findall(r"<(?:style|script)[^>]*>(.*?)</(?:style|script)>", page.path.read_text(), re.DOTALL)
        assert elsewhere("\n".join(inline)) == [], name
    for path in [*built.rglob("*.css"), *built.rglob("*.js"), *built.rglob("*.svg")]:
        assert elsewhere(path.read_text()) == [], path
    # The search works in a browser, from the disk and without a network.
    command = [find_browser(), "--headless", "--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND"]
    command += [f"--user-data-dir={tmp_path}", "--virtual-time-budget=8000", "--dump-dom"]
    command += [f"file://{built}/search.html?q=receive_buffer"]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    results = dom[dom.index('id="search-results"') :].partition("</ul>")[0]
    assert "configuration.html" in results
    assert "mesh.html" not in results


def test_every_document_is_in_the_navigation_once() -> None:
    index = (site.DOCS / site.INDEX).read_text()
    listed = [place for _, entries in site.navigation(index) for _, place in entries]
    assert sorted(listed) == sorted({*site.documents(), site.README} - {site.INDEX})


@pytest.mark.parametrize(
    ("home", "text", "copied"),
    [
        (site.DOCS, "[a](systemd.md#keys) [b](../README.md#x)", "[a](systemd.md#keys) [b](readme.md#x)"),
        (ROOT, "[c](docs/systemd.md)", "[c](systemd.md)"),
        (site.DOCS, "[d](../etc/bccnd.yaml)", "[d](source/etc/bccnd.yaml.md)"),
        (
            site.DOCS,
            "![f](report.png) [g](https://x.org/x.md) [h](#here)",
            "![f](report.png) [g](https://x.org/x.md) [h](#here)",
        ),
        (site.DOCS, "`[a](no.md)`\n```sh\n[a](no.md)\n```", "`[a](no.md)`\n```sh\n[a](no.md)\n```"),
    ],
)
def test_links_are_put_right_for_the_site_and_code_is_left_alone(home: Path, text: str, copied: str) -> None:
    assert site.copied(text, home, set()) == copied
    with pytest.raises(site.BrokenLink, match=r"nowhere\.md"):
        site.copied("[a](nowhere.md)", site.DOCS, set())


def test_files_that_documents_point_to_are_shown(tmp_path: Path) -> None:
    shown: set[PurePosixPath] = set()
    site.copied("[a](../examples/shell) [b](../etc/bccnd.yaml) [c](../docs/site.py)", site.DOCS, shown)
    for inside in (*shown, PurePosixPath("docs/systemd.md")):
        site._show(inside, tmp_path)
    assert "(shell/publish.sh.md)" in (tmp_path / "source/examples/shell.md").read_text()
    assert "socat" in (tmp_path / "source/examples/shell/publish.sh.md").read_text()
    assert "```yaml\n# bccnd.yaml:" in (tmp_path / "source/etc/bccnd.yaml.md").read_text()
    # A file with fences in it is shown whole.
    page = (tmp_path / "source/docs/systemd.md.md").read_text()
    assert page.count("````") == 2
    assert (ROOT / "docs/systemd.md").read_text().rstrip() in page
