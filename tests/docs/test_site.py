"""The site that is made of the documents: whole, without a resource from elsewhere, each page to be found."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath

import pytest

from docs import site
from tests.browser import find_browser
from tests.support import ROOT

#: attributes by which a browser fetches something
FETCHING = {"src", "srcset", "poster", "data", "action", "background"}


class Page(HTMLParser):
    """What a page fetches, where it leads, which anchors it has, and its images."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.fetches: list[str] = []
        self.leads: list[str] = []
        self.anchors: set[str] = set()
        self.images: list[dict[str, str | None]] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if identifier := given.get("id"):
            self.anchors.add(identifier)
        if tag == "img":
            self.images.append(given)
        for name, value in attrs:
            if value and (name in FETCHING or (name == "href" and tag == "link")):
                self.fetches.append(value)
            elif value and name == "href":
                self.leads.append(value)
            elif value and name == "style":
                self.fetches += re.findall(r"url\(([^)]*)\)", value)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, made as `make docs` makes it: any warning, also about a link or an anchor, is a failure."""
    folder = tmp_path_factory.mktemp("site")
    assert site.build(folder / "html", folder / "source") == 0
    return folder / "html"


@pytest.fixture(scope="module")
def pages(built: Path) -> dict[str, Page]:
    return {str(path.relative_to(built)): Page(path) for path in sorted(built.rglob("*.html"))}


def test_every_document_has_its_page(pages: dict[str, Page]) -> None:
    wanted = {name.replace(".md", ".html") for name in site.documents()} | {"readme.html", "search.html"}
    assert wanted <= set(pages)


def test_every_document_is_in_the_navigation_once() -> None:
    index = (site.DOCS / site.INDEX).read_text()
    listed = [place for _, entries in site.navigation(index) for _, place in entries]
    assert sorted(listed) == sorted({*site.documents(), site.README} - {site.INDEX})


def test_and_in_that_of_every_page(pages: dict[str, Page]) -> None:
    for name in ("index.html", "links.html", "configuration.html"):
        leads = {one.partition("#")[0] for one in pages[name].leads}
        missing = {other.replace(".md", ".html") for other in site.documents()} - leads - {name}
        assert missing == set()


def test_every_way_on_the_site_leads_somewhere(built: Path, pages: dict[str, Page]) -> None:
    lost = []
    looked_at = 0
    for name, page in pages.items():
        for target in (*page.leads, *page.fetches):
            if re.match(r"[a-z]+:", target):
                continue
            place, _, anchor = target.partition("#")
            looked_at += 1
            path = (page.path.parent / place.partition("?")[0]).resolve() if place else page.path
            if not path.exists():
                lost.append((name, target))
            elif anchor and path.suffix == ".html" and not place.endswith("search.html"):
                other = pages[str(path.relative_to(built.resolve()))] if place else page
                if anchor not in other.anchors:
                    lost.append((name, target))
    assert lost == []
    assert looked_at > 1000


def elsewhere(text: str) -> list[str]:
    """The addresses that a browser would fetch by a style or a script."""
    found = re.findall(r"""(?:url\(|@import|import\s*\(|fetch\(|\bfrom)\s*['"]?((?:https?:)?//[^'")\s]+)""", text)
    return [one for one in found if "www.w3.org" not in one]


def test_nothing_is_fetched_from_elsewhere(built: Path, pages: dict[str, Page]) -> None:
    for name, page in pages.items():
        assert [one for one in page.fetches if re.match(r"(?:[a-z]+:)?//|https?:", one)] == [], name
        inline = re.findall(r"<(?:style|script)[^>]*>(.*?)</(?:style|script)>", page.path.read_text(), re.DOTALL)
        assert elsewhere("\n".join(inline)) == [], name
    for path in [*built.rglob("*.css"), *built.rglob("*.js"), *built.rglob("*.svg")]:
        assert elsewhere(path.read_text()) == [], path
    # It must be this test that would notice.
    assert elsewhere('@import "https://example.org/x.css"; a { background: url(//example.org/y) }') != []


def test_every_image_says_what_it_shows(pages: dict[str, Page]) -> None:
    images = [(name, image) for name, page in pages.items() for image in page.images]
    assert len(images) >= 8
    for name, image in images:
        assert len(image.get("alt") or "") > 12, (name, image)


@pytest.mark.parametrize("path", sorted(site.DOCS.glob("model-*.svg")), ids=lambda path: path.name)
def test_a_picture_can_be_heard_and_is_for_light_and_dark(path: Path) -> None:
    text = path.read_text()
    assert re.search(r"<svg[^>]*role=\"img\"[^>]*aria-labelledby=\"title desc\"", text)
    assert len(re.findall(r"<(title|desc) id=\"\1\">[^<]{20,}</\1>", text)) == 2
    assert "prefers-color-scheme: dark" in text


def test_the_search_knows_every_page(built: Path) -> None:
    index = (built / "searchindex.js").read_text()
    for name in site.documents():
        assert f'"{name.removesuffix(".md")}"' in index


def seen(path: Path, address: str) -> str:
    """The page as a browser has it once its scripts have run, from the disk and without any network."""
    command = [find_browser(), "--headless", "--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND"]
    command += [f"--user-data-dir={path}", "--virtual-time-budget=8000", "--dump-dom", address]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def test_the_search_finds_in_a_real_browser_from_the_disk(built: Path, tmp_path: Path) -> None:
    dom = seen(tmp_path, f"file://{built}/search.html?q=receive_buffer")
    results = dom[dom.index('id="search-results"') :]
    assert "configuration.html" in results
    assert "mesh.html" not in results.partition("</ul>")[0]


# -- copying


def documents_said(text: str, home: Path = site.DOCS) -> str:
    return site.copied(text, home, set())


def test_links_are_put_right_for_the_site() -> None:
    assert (
        documents_said("[a](systemd.md#keys) [b](../README.md#programs)")
        == "[a](systemd.md#keys) [b](readme.md#programs)"
    )
    assert documents_said("[c](docs/systemd.md)", ROOT) == "[c](systemd.md)"
    assert documents_said("[d](../etc/bccnd.yaml)") == "[d](source/etc/bccnd.yaml.md)"
    assert documents_said("[`e`](../examples/c) ![f](report.png)") == "[`e`](source/examples/c.md) ![f](report.png)"
    assert documents_said("[g](https://example.org/x.md) [h](#here)") == "[g](https://example.org/x.md) [h](#here)"


@pytest.mark.parametrize("text", ["`[a](nowhere.md)`", "```sh\n[a](nowhere.md)\n```"])
def test_code_is_left_as_it_is(text: str) -> None:
    assert documents_said(text) == text


def test_a_link_to_nothing_is_an_error() -> None:
    with pytest.raises(site.BrokenLink, match=r"nowhere\.md"):
        documents_said("[a](nowhere.md)")


def test_files_that_documents_point_to_are_shown(tmp_path: Path) -> None:
    shown: set[PurePosixPath] = set()
    site.copied("[a](../examples/shell) [b](../etc/bccnd.yaml)", site.DOCS, shown)
    for inside in shown:
        site._show(inside, tmp_path)
    listing = (tmp_path / "source/examples/shell.md").read_text()
    assert "(shell/publish.sh.md)" in listing
    assert "socat" in (tmp_path / "source/examples/shell/publish.sh.md").read_text()
    assert "```yaml\n# bccnd.yaml:" in (tmp_path / "source/etc/bccnd.yaml.md").read_text()


def test_a_file_with_fences_in_it_is_shown_whole(tmp_path: Path) -> None:
    site._show(PurePosixPath("docs/systemd.md"), tmp_path)
    page = (tmp_path / "source/docs/systemd.md.md").read_text()
    assert page.count("````") == 2
    assert (ROOT / "docs/systemd.md").read_text().rstrip() in page


def test_the_documents_themselves_stay_as_they_are(built: Path) -> None:
    def state() -> Iterator[tuple[str, str]]:
        for path in site.DOCS.glob("*.md"):
            yield path.name, path.read_text()

    before = dict(state())
    site.stage(built.parent / "again")
    assert dict(state()) == before
