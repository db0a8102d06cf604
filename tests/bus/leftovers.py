"""What a bus charges its users for, and what it still holds after its last client."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from typing import Final

from bccnd.core.sending.send_queue import ENTRY
from bccnd.net.loop import Timer
from tests.support import Hub

#: types of objects that must not stay
LOOKED_FOR: Final = tuple(f"<class '{module}." for module in ("bccnd", "h11", "socket", "functools"))


def every_charge_is_what_is_kept(hub: Hub) -> None:
    here = list(hub.bus.clients.values())
    for client in here:
        account = client.account
        own = [one for one in here if one.account is account]
        assert {one.peer.uid for one in own} == {account.uid}
        assert hub.bus.quota.account(account.uid) is account
        assert account.clients == len(own)
        waits = sum(len(one.blocked_packet) + ENTRY for one in own if one.blocked_packet is not None)
        assert account.queue_bytes == waits + sum(one.queue.memory for one in own)
        assert account.subscriptions == sum(one.subscriptions for one in own)
        assert client.subscriptions == sum(hub.routes.patterns(client.fd).values())
        assert set(account.blocked) <= set(own)
    assert hub.bus.queue_bytes == sum(client.queue.bytes for client in here)
    assert hub.routes.subscriptions == sum(client.subscriptions for client in here)
    assert len(hub.routes) == len(hub.bus.registry.by_pid) == len(here)


def timers() -> int:
    """How many timers there are in this process."""
    return sum(type(one) is Timer for one in gc.get_objects())


def kept_without_gc(cause: Callable[[], object], times: int) -> dict[str, int]:
    """Call a function that makes ``times`` things and ends them; return types of which as many objects stay.

    A daemon freezes its objects every minute; those that are part of a cycle are never freed then. Timers are not
    looked for: a cancelled one stays until its time, and holds nothing.
    """

    def objects() -> Counter[str]:
        # Not by their names, which some types of h11 lack.
        kinds = [repr(type(one)) for one in gc.get_objects() if type(one) is not Timer]
        return Counter(kind for kind in kinds if kind.startswith(LOOKED_FOR))

    cause()  # fills caches
    gc.collect()
    gc.disable()
    try:
        before = objects()
        cause()
        return {name: count for name, count in (objects() - before).items() if count >= times}
    finally:
        gc.enable()


def nothing_is_left(hub: Hub) -> None:
    assert hub.routes.subscriptions == len(hub.routes) == 0
    assert hub.bus.queue_bytes == 0
    assert len(hub.bus.registry.by_pid) == len(hub.builder.runs()) == 0
    assert hub.bus.queues.waiting == hub.bus.queues.blockers == hub.bus.queues.batched == set()
    assert all(account.clients == account.queue_bytes == account.subscriptions == 0 for account in hub.bus.quota)
