"""The status page in a real browser, of a real daemon with live traffic and trouble in it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.browser import MEASURE, Browser
from tests.e2e.harness import KEY, Daemon, Wire, datagram, wait
from tests.e2e.scene import Fleet, readers, settings

pytestmark = pytest.mark.slow

EVIL = "<img/src=x/onerror=alert`1`>"


def lost(daemon: Daemon) -> dict[str, Any]:
    """The page's entry of lost messages."""
    reported = json.loads(daemon.page("/status.json"))
    return next((one for one in reported["drops"] if one["name"] == "messages_lost"), {"now": False})


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("page")
    with Daemon(folder / "a", start=False) as one, ExitStack() as stack:
        one.configure(settings(folder, one))
        one.start()
        fleet = Fleet(one)
        stack.callback(fleet.close)
        readers(one, stack)
        with Wire(one.port) as wire:
            wire.send(datagram(EVIL, 1, EVIL, b"x", KEY))
            wire.send(datagram(EVIL, 9, EVIL, b"x", KEY))
            wire.send(datagram("s" * 128, 1, "c" * 1000, b"x", KEY))
        wait(lambda: lost(one)["now"], "something to be lost")
        yield one


@pytest.fixture(scope="module")
def started() -> Iterator[Browser]:
    with Browser() as one:
        yield one


@pytest.fixture
def browser(started: Browser) -> Browser:
    started.look()
    started.output.clear()
    started.asked.clear()
    return started


def accepted(browser: Browser) -> int:
    """How many datagrams were accepted, as the page says."""
    text = browser.see("document.querySelector('.chart.accepted figcaption .soft')?.textContent || ''")
    return int(re.sub(r"\D", "", text.partition(" ")[0]) or 0)


def visit(browser: Browser, daemon: Daemon) -> None:
    """Open the page, and wait for its data."""
    browser.go(f"{daemon.url}/")
    browser.until(lambda: browser.see("document.getElementById('sentence') !== null"), "the data")


def rise(browser: Browser) -> None:
    """Wait until the page shows that more was accepted."""
    at = accepted(browser)
    browser.until(lambda: accepted(browser) > at, "more")


def test_numbers_rise_by_themselves_and_names_are_text(browser: Browser, daemon: Daemon) -> None:
    visit(browser, daemon)
    assert accepted(browser) > 0
    browser.see("window.same = document.querySelector('.chart.accepted'), true")
    # Once as the script puts it in place, and once as it changes it there.
    rise(browser)
    rise(browser)
    assert browser.see("window.same === document.querySelector('.chart.accepted')") is True
    assert "messages_lost" in browser.see("document.getElementById('sentence').textContent")
    assert browser.see("document.getElementById('gone').hidden") is True
    assert EVIL in browser.see("document.getElementById('sources').textContent")
    assert browser.see("document.querySelectorAll('main img, main script').length") == 0
    assert browser.output == []
    assert {one.removeprefix(daemon.url) for one in browser.asked if not one.startswith("data:")} == {
        *("/", "/status.json")
    }


def test_everything_fits_and_can_be_read(browser: Browser, daemon: Daemon) -> None:
    for width, dark in ((1280, False), (1280, True), (390, True), (320, False), (390, False)):
        browser.look(width, 844, dark=dark)
        visit(browser, daemon)
        seen: dict[str, Any] = browser.see(MEASURE)
        assert seen["wide"] == []
        assert seen["scroll"] == width
        assert seen["texts"] > 150
        assert seen["least"][0][0] >= 4.5, seen["least"]
        assert (seen["paper"] < 0.1) is dark


def test_focus_and_selection_stay_while_it_changes(browser: Browser, daemon: Daemon) -> None:
    visit(browser, daemon)
    sentence = "document.getElementById('sentence').textContent"
    browser.until(lambda: "messages_lost" in browser.see(sentence), "a link in the sentence")
    where = "document.activeElement.textContent || document.activeElement.tagName"
    order = []
    for _ in range(4):
        browser.press("Tab", 9)
        order.append(browser.see(where))
    assert order[order.index("Pause") + 1] == "messages_lost"
    assert browser.see("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    browser.see("getSelection().selectAllChildren(document.querySelector('#segments tbody tr')), true")
    browser.see(
        "window.changes = 0, new MutationObserver(all => window.changes += all.length)"
        ".observe(document.getElementById('sentence'), {childList: true, characterData: true, subtree: true}), true"
    )
    text = browser.see("getSelection().toString()")
    output = browser.see(sentence)
    rise(browser)
    assert browser.see(where) == order[-1]
    assert browser.see("getSelection().toString()") == text
    # Only the sentence is announced, and only when it changes.
    if browser.see(sentence) == output:
        assert browser.see("window.changes") == 0
    assert browser.see("document.querySelectorAll('[aria-live]').length") == 1


def test_it_can_be_paused_and_works_without_scripts(browser: Browser, daemon: Daemon) -> None:
    visit(browser, daemon)
    browser.see("document.getElementById('pause').click()")
    assert browser.see("document.getElementById('pause').getAttribute('aria-pressed')") == "true"
    at = accepted(browser)
    browser.asked.clear()
    # It would have asked by then.
    browser.see("new Promise(done => setTimeout(done, 4000))")
    assert (browser.asked, accepted(browser)) == ([], at)
    browser.see("document.getElementById('pause').click()")
    rise(browser)
    browser.look(script=False)
    try:
        browser.go(f"{daemon.url}/")
        links = browser.see("[...document.querySelectorAll('noscript a')].map(link => link.getAttribute('href'))")
        assert links == ["status.json", "fleet.json"]
        assert browser.see("document.querySelector('noscript').getBoundingClientRect().height") > 10
    finally:
        browser.look()


def test_it_says_when_the_daemon_is_gone_and_goes_on(browser: Browser, tmp_path: Path) -> None:
    with Daemon(tmp_path / "b") as other:
        visit(browser, other)
        before = browser.see("document.getElementById('footer').textContent")
        other.stop()
        browser.until(lambda: browser.see("document.getElementById('gone').hidden") is False, "a sign")
        assert re.search(r"\d:\d\d", browser.see("document.getElementById('gone-since').textContent"))
        other.start()
        browser.until(lambda: browser.see("document.getElementById('gone').hidden") is True, "it to go on")
        assert browser.see("document.getElementById('footer').textContent") != before  # it names the new process
