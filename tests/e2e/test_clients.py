"""Programs in Python, blocking and on asyncio, whose daemon is restarted and killed, and which ask for batches."""

from __future__ import annotations

from pathlib import Path

import bccnd
from bccnd.client.session import Refusal
from tests.client.sessions import Join, both
from tests.e2e.harness import PATIENCE, Daemon, payloads


def restart(daemon: Daemon) -> None:
    daemon.stop()
    daemon.start()


def kill(daemon: Daemon) -> None:
    daemon.kill()
    daemon.start()


@both
def test_a_client_reports_an_absence_and_goes_on_with_all_that_it_has_asked_for(join: Join, tmp_path: Path) -> None:
    with Daemon(tmp_path / "d") as daemon, join(str(daemon.bus)) as bus:
        name = bus.identity()
        bus.subscribe("a", "a", "b/", "gone")
        bus.unsubscribe("gone")
        bus.tag("door")
        bus.echo(False)
        bus.blocking(soft="discard", hard="block")
        bus.order("stack")
        assert bus.sync() == []
        for times, end in enumerate((restart, kill), 1):
            end(daemon)
            event = bus.receive(PATIENCE)
            assert isinstance(event, bccnd.Reconnected), event
            assert event.seconds > 0
            assert bus.reconnects == times
            assert bus.identity() == f"{name}/door"
            bus.publish("a", "mine")
            assert bus.sync(PATIENCE) == []
            with daemon.connect() as other:
                other.publish("gone", "x")
                other.publish("a", "1")
                assert payloads(bus, 1) == [b"1"]
                other.publish("b/c", "2")
                assert payloads(bus, 1) == [b"2"]
        bus.unsubscribe("a")
        assert bus.sync() == []
        bus.unsubscribe("a")
        assert bus.sync() == []
        bus.unsubscribe("a")
        assert bus.sync() == [Refusal("not_subscribed", "a")]
