"""The page: harmless whatever names hold, every chart named, every finding linked to its figures."""

from __future__ import annotations

import html
import re
from dataclasses import replace

import pytest

from bccnd.pipeline.report import svg_charts
from bccnd.pipeline.report.facts import Course, Facts, Link, Silence
from bccnd.pipeline.report.finding_checks import run_checks
from bccnd.pipeline.report.html_page import ROWS, render
from tests.html_reader import HtmlReader
from tests.pipeline import reporting
from tests.pipeline.reporting import EVIL, HOUR, START, full


def made(facts: Facts, title: str = "") -> str:
    return render(facts, run_checks(facts), title)["index.html"]


def parsed(text: str) -> HtmlReader:
    page = HtmlReader(text)
    assert page.balanced
    return page


@pytest.fixture(scope="module")
def text() -> str:
    return made(full())


def test_a_page_fetches_nothing_and_runs_nothing(text: str) -> None:
    elements = parsed(text).found
    tags = {tag for tag, _ in elements}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "form", "image", "foreignobject", "base"}
    given = [attribute for _, attributes in elements for attribute in attributes.items()]
    assert not [name for name, _ in given if name.startswith("on")]
    links = [value for name, value in given if name in ("href", "src", "xlink:href")]
    assert all(link.startswith(("#", "data:text/csv;", "data:application/json;")) for link in links)
    assert not re.findall(r"https?:|url\(|@import", text)


def test_names_from_the_network_are_text_and_nothing_else(text: str) -> None:
    hostile = made(full(EVIL), EVIL)
    assert "<script" not in hostile
    elements = parsed(hostile)
    shown = " ".join(elements.text.split())
    # in the headline, in findings, in tables and in charts, as it was written
    assert shown.count(EVIL) >= 8
    assert {tag for tag, _ in elements.found} == {tag for tag, _ in parsed(text).found}
    unprintable = made(full("a\x00b\x1b[2J\u202e/x"))
    assert not {"\x00", "\x1b", "\u202e"} & set(unprintable)
    assert "a\\x00b\\x1b" in unprintable


def test_each_finding_leads_to_its_row() -> None:
    facts = full(hosts=6)
    facts = replace(facts, links=tuple(link._replace(lost_here=4000 * (link.host == "h03")) for link in facts.links))
    silent = Silence("h04/other", START, START + HOUR // 2, "gap", "heartbeat")
    absent = Course((600,) * 60, (0,) * 60, (600,) * 30 + (0,) * 30)
    facts = replace(facts, silences=(*facts.silences, silent), receivers={**facts.receivers, "h05": absent})
    text = made(facts)
    ids = re.findall(r'\bid="([^"]*)"', text)
    links = re.findall(r'href="#([^"]*)"', text)
    assert len(ids) == len(set(ids))
    assert set(links) <= set(ids)
    for finding in run_checks(facts):
        item = text.split(f"<h3>{html.escape(finding.title)}</h3>")[1].split("</li>")[0]
        row, _ = re.findall(r'href="#([^"]*)"', item)
        cells = text.split(f'id="{row}"')[1].split("</tr>")[0]
        assert all(f"<td>{html.escape(name)}" in cells for name in finding.about), finding


def test_pages_of_a_quiet_fleet_and_of_none() -> None:
    link = Link("h01", "h02/a", 100, 100, 100, 0, 0, 0, 0, 0)
    absent = Link("h02", "h03/a", 5, 5, 0, 0, 0, 5, 0, 0)
    quiet = made(Facts(START, START + HOUR, reporting.MINUTE, ("h01", "h02"), (link, absent)))
    parsed(quiet)
    assert "All is well" in quiet
    assert "There is nothing to act on" in quiet
    facts = replace(full(), links=(), receivers={}, sending={}, delivery=(), channels=(), starts=(), silences=())
    parsed(made(facts))


def test_long_tables_are_cut_and_what_was_left_out_is_counted() -> None:
    links = tuple(Link("h01", f"s{number}/a", 100, 100, 90, 10, 0, 0, 0, 0) for number in range(ROWS + 50))
    text = made(replace(full(), links=links, folded={"sets of receivers": 12}))
    body = re.search(r'<section id="matrix".*?</section>', text, re.DOTALL)
    assert body
    assert body[0].count('<tr id="matrix-') == ROWS
    assert "50\N{NO-BREAK SPACE}more rows" in body[0]
    assert "12 sets of receivers" in text


def test_weeks_fit_on_a_time_axis() -> None:
    for days in (1, 3, 30, 400):
        facts = replace(full(), end=START + days * 24 * HOUR)
        assert 2 <= len(svg_charts.ticks(facts, 0)) <= 9


def test_nothing_due_is_a_gap_and_no_zero() -> None:
    """An hour of which a host recorded the first and the last twenty minutes."""
    course = Course((9,) * 20 + (0,) * 20 + (9,) * 20, (1,) * 20 + (0,) * 20 + (1,) * 20, (0,) * 60)
    links = Link("h01", "h02/a", 0, 0, 0, 0, 0, 0, 0, 0), Link("h02", "h01/a", 360, 360, 320, 40, 0, 0, 0, 0)
    facts = Facts(START, START + HOUR, reporting.MINUTE, ("h01", "h02"), links, {"h02": course})
    for name, _, path in svg_charts.loss_chart(facts)["curves"]:
        assert path.count("M") == 2, name
    row = re.search(r'<tr id="matrix-1">(.*?)</tr>', made(facts))
    assert row
    assert re.findall("<td[^>]*>([^<]*)", row[1])[:6] == ["h02/a", "h01", "0", "0", "0", ""]


def test_all_that_one_finding_stands_for_is_in_it() -> None:
    silences = tuple(Silence(f"h{n:02d}/{name}", START, None, "host_down", "any") for n in range(20) for name in "ab")
    one, text = (made(replace(full(), silences=kept)) for kept in (silences[:1], silences))
    assert text.count('<span class="tag">') == one.count('<span class="tag">')
    assert all(f"h{n:02d} went down" in text for n in range(20))
