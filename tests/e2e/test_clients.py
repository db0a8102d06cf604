"""Programs in Python, blocking and on asyncio, whose daemon is killed, and that give up a request."""

from __future__ import annotations

from pathlib import Path
from signal import SIGCONT, SIGSTOP

import bccnd
from bccnd.client.event_queues import Refusal
from bccnd.core.wire import frames
from tests.client.sessions import Join, both
from tests.e2e.harness import PATIENCE, Daemon, payloads
from tests.refusals import refused


@both
def test_a_client_goes_on_with_all_that_it_has_asked_for(join: Join, tmp_path: Path) -> None:
    with Daemon(tmp_path / "d") as daemon, join(str(daemon.bus)) as bus:
        name = bus.identity()
        bus.subscribe("a", "a", "b/", "gone")
        bus.unsubscribe("gone")
        bus.tag("door")
        bus.echo(False)
        bus.blocking(soft="discard", hard="block")
        bus.order("stack")
        assert bus.sync() == []
        daemon.kill()
        daemon.start()
        event = bus.receive(PATIENCE)
        assert isinstance(event, bccnd.Reconnected), event
        assert event.seconds > 0
        assert bus.reconnects == 1
        assert bus.identity() == f"{name}/door"
        bus.publish("a", "mine")
        assert bus.sync(PATIENCE) == []
        with daemon.connect() as other:
            for chan in ("gone", "a", "b/c"):
                other.publish(chan, chan)
                assert other.sync(PATIENCE) == []
        assert sorted(payloads(bus, 2)) == [b"a", b"b/c"]
        bus.unsubscribe("a")
        assert bus.sync() == []
        bus.unsubscribe("a")
        assert bus.sync() == []
        bus.unsubscribe("a")
        assert bus.sync() == [Refusal("not_subscribed", "a")]


@both
def test_a_request_that_was_given_up_takes_no_later_answer(join: Join, tmp_path: Path) -> None:
    with Daemon(tmp_path / "d") as daemon, join(str(daemon.bus)) as bus:
        name = bus.identity()
        daemon.running.send_signal(SIGSTOP)
        try:
            with refused("no_answer"):
                bus.ask(frames.STATS, "clients", timeout=0.1)
        finally:
            daemon.running.send_signal(SIGCONT)
        with daemon.connect() as other:
            assert bus.ask(frames.STATS, "keys") == other.ask(frames.STATS, "keys")
        assert bus.identity() == name
        assert bus.receive(0) is None
