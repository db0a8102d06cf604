"""Listings of a daemon whose clients and sources come and go."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from bccnd.bus.clients.receiver_listing import describe_receivers
from bccnd.bus.clients.registry import PORTION
from bccnd.core.receiving.ingress import Ingress
from bccnd.core.tracking.anonymous_dedup import AnonymousDedup
from bccnd.core.tracking.dedup import TrackerTable
from bccnd.core.trust.integrity import make_checker
from bccnd.core.wire import bccn1, frames
from bccnd.monitoring.daemon_state import DaemonState
from bccnd.monitoring.listings import Listings
from tests.rules import dedup_rules
from tests.support import Hub, turn, turn_until

#: from another host
DATAGRAM = bccn1.build(b"a/b/1:1:x/y|hello")


def listings_of(hub: Hub) -> Listings:
    anonymous = AnonymousDedup(hub.sources.limits)
    ingress = Ingress(make_checker("none", ()), hub.sources, anonymous, hub.routes)
    parts = {"sources": hub.sources, "anonymous": anonymous, "routes": hub.routes, "bus": hub.bus}
    return Listings(cast(DaemonState, SimpleNamespace(ingress=ingress, **parts)))


def test_a_client_that_is_being_removed_is_no_receiver(tmp_path: Path) -> None:
    with Hub(tmp_path) as hub:
        listings = listings_of(hub)
        leaving, staying = hub.connect(), hub.connect(b"x/y")
        for number in range(3 * PORTION):
            leaving.send(frames.subscribe(b"%d/*" % number))
        leaving.send(frames.subscribe(b"x/>"))
        assert leaving.all() == []
        assert len(listings.trace(DATAGRAM)["receivers"]) == 2
        leaving.close()
        while hub.bus.clients.get(leaving.client.fd) is leaving.client:
            turn(hub.loop)
        found = listings.trace(DATAGRAM)
        assert found["receivers"] == [staying.client.identity.decode()]
        assert (found["stages"][-1]["finding"], found["more_receivers"]) == ("1 client", 0)
        described = describe_receivers(hub.routes, hub.bus.clients, b"x/y")
        assert [row["patterns"] for row in described["receivers"]] == [["x/y"]]
        assert hub.routes.subscriptions > PORTION
        turn_until(hub.loop, lambda: hub.routes.subscriptions == 1, "the end of its patterns")


def test_a_listing_leaves_out_what_has_gone_meanwhile() -> None:
    sources = TrackerTable(dedup_rules())
    for number in range(5):
        sources.start(b"host/%d" % number, 1, float(number))
    dead = OrderedDict((src, SimpleNamespace(heard=0.0)) for src in (b"gone/1", b"gone/2", b"gone/3"))
    daemon: Any = SimpleNamespace(
        sources=sources,
        liveness=SimpleNamespace(dead=dead),
        keys_since=1e9,
    )
    rows = Listings(daemon).list_sources()
    first = next(rows)["src"]
    last = sources.get(b"host/0")
    assert last is not None
    sources.forget(last)
    listed = [first, *(next(rows)["src"] for _ in range(4))]
    del dead[b"gone/1"]
    assert listed == ["host/4", "host/3", "host/2", "host/1", "gone/3"]
    assert [row["src"] for row in rows] == ["gone/2"]
