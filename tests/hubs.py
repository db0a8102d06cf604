"""Buses that more than one file of tests turns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bccnd.core.observing.counters import DROP_REASONS
from bccnd.core.wire import frames
from bccnd.core.wire.verdicts import NAMES
from bccnd.net.loop import Loop
from tests.monitoring.pages import HOSTILE, Observed, open_segment
from tests.rules import bus_limits
from tests.support import Hub


@pytest.fixture
def loop() -> Iterator[Loop]:
    one = Loop()
    yield one
    one.close()


@pytest.fixture
def observed(tmp_path: Path) -> Iterator[Observed]:
    """What is measured of a daemon with two segments and room for three clients."""
    segments = [open_segment("here"), open_segment(HOSTILE)]
    with Hub(tmp_path, limits=bus_limits(max_clients=3)) as hub:
        yield Observed(hub, segments)
    for segment in segments:
        segment.close()


@pytest.fixture
def busy(observed: Observed) -> Observed:
    """A daemon to which everything that is counted has happened."""
    hub = observed.hub
    segment = observed.segments[0]
    segment.sender.send(b"hello")
    segment.sender.send(b"x" * 70_000)
    for number in range(len(NAMES)):
        segment.counters.judged(number, number + 1)
    observed.sources.judge_new(b"silent", 1, 900.0)
    observed.sources.judge_new(b"a/b/1", 1, 1000.0)
    observed.sources.judge(b"a/b/1", 2, 1000.0)
    observed.sources.judge(b"a/b/1", 5, 1000.0)
    observed.forward.add(3e-5)
    observed.forward.add(9.0)
    client = hub.connect(b"cardsys/", b"x")
    hub.connect()
    hub.connect()
    hub.knock()
    client.publish(b"x", b"1", b"2")
    client.publish(b"no channel", b"")
    client.send(b"nonsense", frames.subscribe(b"!/cred/1/2/3/x"))
    assert len(client.all()) == 5
    for reason in DROP_REASONS:
        observed.bus.counters.dropped.add(reason)
    return observed
