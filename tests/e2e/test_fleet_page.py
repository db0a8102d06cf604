"""The view of the fleet in a real browser, of a real daemon that few and many hosts report to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bccnd.fleet.report_format import HeardHost, head_line, heard_line
from tests.browser import Browser
from tests.e2e.harness import Daemon, Wire, datagram, wait

pytestmark = pytest.mark.slow

#: lines in one datagram
LINES = 25


def tell(daemon: Daemon, hosts: list[str]) -> None:
    """Let hosts report about each other: the second loses messages of all, the first many of the last."""
    with Wire(daemon.port) as wire:
        for receiver in hosts:
            lost = dict.fromkeys(hosts, 40 * (receiver == hosts[1]))
            if receiver == hosts[0]:
                lost[hosts[-1]] = 700
            lines = [
                heard_line(HeardHost(one, 1, 1000 - lost[one], lost[one], 0, 0)) for one in hosts if one != receiver
            ]
            for number, start in enumerate(range(0, len(lines), LINES), 1):
                text = head_line("1.0.0", 60_000, 1, 1) + b"".join(lines[start : start + LINES])
                wire.send(datagram(f"{receiver}/bccnd/1", number, f"bccn/report/{receiver}", text))
    wait(lambda: len(json.loads(daemon.page("/fleet-table.json"))["receivers"]) == len(hosts) + 1)


def test_the_matrix_is_shown_for_few_and_for_many_hosts(tmp_path: Path) -> None:
    few = [f"relay{number:03d}" for number in range(1, 6)]
    with Daemon(tmp_path / "d", {"host": "here"}) as daemon, Browser() as browser:
        tell(daemon, few)
        for width, dark in ((1280, False), (390, True)):
            browser.look(width, 800, dark=dark)
            browser.go(f"{daemon.url}/fleet")
            browser.until(lambda: browser.see("document.querySelectorAll('#matrix tbody tr').length") == 6, "the table")
            cells = browser.see("[...document.querySelectorAll('#matrix tbody td')].map(cell => cell.textContent)")
            assert cells.count("70 %") == 1
            assert cells.count("4 %") == 4
            findings = browser.see("document.getElementById('findings').textContent")
            assert "relay002 loses" in findings
            assert "relay001 loses 70 %" in findings
            assert browser.see("document.documentElement.scrollWidth <= innerWidth")
        browser.see("document.querySelector('#matrix td[data-level=\"4\"]').click()")
        assert "700 of 1000 lost" in browser.see("document.getElementById('figures').textContent")
        many = [f"relay{number:03d}" for number in range(1, 201)]
        tell(daemon, [one for one in many if one not in few] + few)
        browser.look(1280, 800)
        browser.go(f"{daemon.url}/fleet")
        browser.until(lambda: browser.see("!!document.querySelector('#matrix canvas')"), "the drawing")
        browser.see("document.querySelector('#matrix canvas').focus()")
        browser.press("ArrowRight", 39)
        assert "from" in browser.see("document.getElementById('figures').textContent")
        assert browser.see("document.querySelectorAll('#worst tbody tr').length") == 20
        assert browser.forbidden == []
