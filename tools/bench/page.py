"""What the status page costs a large host, in milliseconds of the loop on which datagrams are served."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bccnd.core.matching.routes import CACHE
from bccnd.core.tracking.liveness import MAX_DEAD, SILENT, Death
from bccnd.core.tracking.loss_by_source import MAX_LOST_BY_SOURCE
from bccnd.monitoring.status_collector import MAX_SILENT
from bccnd.monitoring.status_html import render
from tests.monitoring.pages import Daemon, open_segment
from tests.rules import bus_limits
from tests.support import Hub

SOURCES, CLIENTS = 100_000, 1000


def least(call: Callable[[], object], before: Callable[[], object] = lambda: None, times: int = 9) -> float:
    """Milliseconds that it takes, when nothing else has a part in it."""

    def once() -> float:
        before()
        began = time.thread_time()
        call()
        return (time.thread_time() - began) * 1000

    return min(once() for _ in range(times))


def fill(daemon: Daemon) -> None:
    """All tables as full as they get; half of the sources were heard lately, which is what takes longest to count."""
    for number in range(SOURCES):
        when = daemon.clock - 600 * (number < SOURCES // 2)
        daemon.sources.judge_new(b"host/%d/program" % number, 1, when)
    for number in range(2 * MAX_LOST_BY_SOURCE):
        daemon.sources.losses.by_src[b"host/%d/program" % number] = number + 1
    daemon.collector.update_sources((b"host/%d/program" % number, SILENT) for number in range(MAX_SILENT))
    daemon.liveness.dead.update((b"dead/%d" % number, Death(1.0, 1.0, 0.0)) for number in range(MAX_DEAD))
    daemon.hub.connect(b"x")
    one = next(iter(daemon.bus.clients.values()))
    daemon.bus.clients.update((100_000 + number, one) for number in range(CLIENTS - 1))


def main() -> None:
    """Print what a sample takes, what a look gathers, and the page that is made of it."""
    with tempfile.TemporaryDirectory() as folder, Hub(Path(folder), limits=bus_limits()) as hub:
        segment = open_segment("here")
        daemon = Daemon(hub, segment)
        fill(daemon)
        chans = [b"chan/%d" % number for number in range(2 * CACHE)]

        def carry() -> None:
            for chan in chans:
                hub.routes.find(chan).carried += 1

        def sample() -> None:
            daemon.channels = hub.routes.carried()
            daemon.collector.sample()

        daemon.begin()
        quiet, busy = least(sample), least(sample, before=carry)
        facts = daemon.facts()
        print(f"{SOURCES:,} sources, {CLIENTS:,} clients")
        print(f"sample, every 5 s           {quiet:6.1f} ms")
        print(f"  with {len(chans):,} busy channels   {busy:6.1f} ms")
        print(f"collecting the data         {least(daemon.facts):6.1f} ms")
        print(f"rendering the page          {least(lambda: render(facts)):6.1f} ms, {len(render(facts)):,} bytes")
        segment.close()


if __name__ == "__main__":
    main()
