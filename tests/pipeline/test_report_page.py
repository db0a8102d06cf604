"""The page: harmless whatever names say, nothing fetched, every chart with its figures as a table."""

from __future__ import annotations

import html
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from bccnd.errors import PipelineError
from bccnd.pipeline.report import charts
from bccnd.pipeline.report.facts import Delivery, Facts, Link
from bccnd.pipeline.report.findings import findings
from bccnd.pipeline.report.page import PRINTED, ROWS, page, set_name
from bccnd.pipeline.report.style import STYLE
from bccnd.pipeline.report.svg import INKS
from bccnd.pipeline.report.write import put, report
from tests.pipeline import reporting
from tests.pipeline.reporting import EVIL, HOUR, START, full


def made(facts: Facts, title: str = "") -> str:
    return page(facts, findings(facts), title)


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in ("meta", "br", "link"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def parsed(text: str) -> _Elements:
    elements = _Elements()
    elements.feed(text)
    elements.close()
    assert elements.open == []
    return elements


@pytest.fixture(scope="module")
def text() -> str:
    return made(full())


def test_a_page_fetches_nothing_and_runs_nothing(text: str) -> None:
    elements = parsed(text)
    tags = {tag for tag, _ in elements.found}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "form", "image", "foreignobject", "base"}
    policies = [
        attrs["content"] for tag, attrs in elements.found if attrs.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"]
    for _, attrs in elements.found:
        for name, value in attrs.items():
            assert not name.startswith("on")
            if name in ("href", "src", "xlink:href"):
                assert (value or "").startswith("#")
    # all that remains of addresses are the names of the two languages
    names = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert set(re.findall(r"https?://[^\s\"'<]+", text)) <= names
    assert "url(http" not in text
    assert "@import" not in text


def test_names_from_the_network_are_text_and_nothing_else(text: str) -> None:
    hostile = made(full(EVIL), EVIL)
    assert "<script" not in hostile
    elements = parsed(hostile)
    shown = " ".join("".join(elements.text).split())
    # in the headline, in findings, in tables and in charts, as it was written
    assert shown.count(EVIL) >= 8
    assert {tag for tag, _ in elements.found} == {tag for tag, _ in parsed(text).found}
    unprintable = made(full("a\x00b\x1b[2J\u202e/x"))
    assert not {"\x00", "\x1b", "\u202e"} & set(unprintable)
    assert "a\\x00b\\x1b" in unprintable


def test_every_chart_is_named_and_has_its_figures_beside_it(text: str) -> None:
    sections = re.findall(r'<section id="(\w+)"(.*?)</section>', text, re.DOTALL)
    names = [name for name, _ in sections]
    assert names == ["first", "matrix", "courses", "events", "sets", "channels", "refused", "clocks"]
    for name, body in sections[1:]:
        (drawn,) = re.findall(r"<svg[^>]*>", body)
        assert 'role="img"' in drawn, name
        assert re.search(r'aria-label="[^"]{20,}"', drawn), name
        assert body.count("<table>") == 1, name


def test_ids_are_unique_and_all_that_is_referred_to_is_there() -> None:
    text = made(full(hosts=6))
    ids = re.findall(r'\bid="([^"]*)"', text)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r"url\(#([^)]*)\)", text)) | set(re.findall(r'href="#([^"]*)"', text)) <= set(ids)


def test_charts_are_well_formed_and_take_their_colours_from_the_page(text: str) -> None:
    drawn = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(drawn) == 7
    for one in drawn:
        ET.fromstring(one)
        assert not re.search(r"#[0-9a-f]{6}\b", one), "a fixed colour"
        assert "DejaVu" not in one
        assert "<text" in one
    roles = set(re.findall(r"var\(--(\w+)\)", "".join(drawn) + STYLE)) | set(INKS)
    light, dark = STYLE.split("prefers-color-scheme: dark")[:2]
    for theme in (light, dark.split("@media")[0]):
        assert [role for role in roles if f"--{role}:" not in theme] == []


def test_the_same_facts_give_the_same_page(text: str) -> None:
    assert made(full()) == text


def test_pages_of_a_quiet_fleet_and_of_none() -> None:
    link = Link("h01", "h02/a", 100, 100, 100, 0, 0, 0, 0, 0)
    quiet = made(Facts(START, START + HOUR, reporting.MINUTE, ("h01", "h02"), 1, 100, (link,)))
    parsed(quiet)
    assert "All is well" in quiet
    assert "Nothing asks for attention" in quiet
    facts = replace(full(), links=(), receivers={}, sending={}, delivery=(), channels=(), epochs=(), silences=())
    parsed(made(facts))


def test_long_tables_are_cut_and_what_was_left_out_is_said() -> None:
    links = tuple(Link("h01", f"s{number}/a", 100, 100, 90, 10, 0, 0, 0, 0) for number in range(ROWS + 50))
    text = made(replace(full(), links=links, folded={"sets of receivers": 12}, missing=("skew",)))
    body = re.search(r'<section id="matrix".*?</section>', text, re.DOTALL)
    assert body
    assert body[0].count("<tr>") == ROWS + 1
    assert "50\N{NO-BREAK SPACE}more rows" in body[0]
    assert f"nth-child(n+{PRINTED + 1})" in STYLE
    assert "12 sets of receivers" in text
    assert ": skew." in text


@pytest.mark.parametrize(("senders", "grouped"), [(50, False), (51, True)])
def test_a_matrix_with_too_many_senders_is_of_their_hosts(senders: int, grouped: bool) -> None:
    links = tuple(
        Link(f"r{host}", f"s{number % 60:02d}/app/{number}", 100, 100, 100 - number, number, 0, 0, 0, 0)
        for host in range(3)
        for number in range(senders)
    )
    table = charts.matrix(replace(full(), links=links))
    assert table.grouped is grouped
    assert len(table.senders) == 50
    assert table.more_senders == (1 if grouped else 0)
    # the worst first
    assert table.senders[0] == ("s50" if grouped else "s49/app/49")
    links = tuple(Link(f"r{host}", "s/a", 100, 100, 100 - host, host, 0, 0, 0, 0) for host in range(5))
    assert charts.matrix(replace(full(), links=links)).receivers == ("r4", "r3", "r2", "r1", "r0")


def test_levels_of_colour() -> None:
    assert [charts.level(ratio) for ratio in (0, 0.0001, 0.001, 0.01, 0.05, 0.2, 1)] == [0, 1, 2, 3, 4, 5, 5]


def test_cells_say_their_figures_where_the_pointer_rests() -> None:
    drawn = charts.draw_matrix(full(EVIL))
    assert drawn
    titles = re.findall(r"<title>(.*?)</title>", drawn)
    assert len(titles) == 3
    assert all("2,000 of 36,000" in html.unescape(one) for one in titles)
    assert EVIL in html.unescape(titles[0])


def test_sets_are_called_by_what_is_shorter() -> None:
    hosts = ("a", "b", "c", "d")
    assert set_name(Delivery(frozenset(hosts), 1), hosts) == "all 4 hosts"
    assert set_name(Delivery(frozenset("abc"), 1), hosts) == "all but d"
    assert set_name(Delivery(frozenset("b"), 1), hosts) == "only b"
    assert set_name(Delivery(frozenset(), 1), hosts) == "nobody"


def test_weeks_fit_on_a_time_axis() -> None:
    for days in (1, 3, 30, 400):
        facts = replace(full(), end=START + days * 24 * HOUR)
        assert charts.draw_time_line(facts)


def test_an_earlier_page_survives_what_goes_wrong(tmp_path: Path) -> None:
    put(str(tmp_path), "earlier")
    with pytest.raises(PipelineError):
        report(str(tmp_path / "nowhere"), str(tmp_path))
    assert [one.name for one in tmp_path.iterdir()] == ["index.html"]
    assert (tmp_path / "index.html").read_text() == "earlier"
    with pytest.raises(PipelineError, match="cannot be written"):
        put(str(tmp_path / "index.html" / "below"), "page")
