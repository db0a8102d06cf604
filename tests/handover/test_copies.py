"""Copies of datagrams that a daemon leaves are sent by the next one."""

from __future__ import annotations

import time
from pathlib import Path

from tests.handover.successors import Site
from tests.support import turn_until


def test_copies_are_sent_after_a_restart_without_another_message(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        now = time.monotonic()
        site.repeater.resume([(now, b"datagram", 0.001, 2, now)])
        site.restart()
        turn_until(site.loop, lambda: len(site.sent) == 2, "the copies")
        assert site.sent == [b"datagram"] * 2
