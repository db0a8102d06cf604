"""What a bus still holds after its last client."""

from __future__ import annotations

from tests.support import Hub


def nothing_is_left(hub: Hub) -> None:
    assert hub.routes.subscriptions == len(hub.routes) == 0
    assert not any((hub.routes._by_prefix, hub.routes._meta, hub.routes._held, hub.routes._identities))
    for tree in (*hub.routes._plain.values(), hub.routes._bus, hub.routes._secret, hub.routes._tap):
        assert tree._root.empty()
    assert hub.bus.queue_bytes == 0
    assert hub.bus._waiting._held == {}
    assert hub.bus._clients._waiting == hub.bus._clients._blockers == hub.bus._clients._batched == set()
    hub.bus.quota._forget_who_left(float("inf"))
    assert len(hub.bus.quota) == 0
    assert hub.egress._speakers == {}
