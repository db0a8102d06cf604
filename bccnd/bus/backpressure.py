"""Publishers that are made to wait: because their user publishes too fast, or for a client that has asked for it.

Law: who waits is not read from, and loses nothing; what was taken from him already is tried again when he may go on.
Nobody waits for a client that is gone, or that has read nothing for longer than is allowed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from bccnd import log
from bccnd.bus.fanout import Client, Clients
from bccnd.core.send_queue import ENTRY
from bccnd.net.loop import HALF_CLOSED, READABLE, Loop


class Backpressure:
    """Holds publishers up and lets them go. ``watch`` has a client watched by the loop again, ``stumble`` ends one
    that has met a bug."""

    def __init__(
        self, loop: Loop, clients: Clients, watch: Callable[[Client], None], stumble: Callable[[Client], None]
    ) -> None:
        self._loop = loop
        self._clients = clients
        self._watch = watch
        self._stumble = stumble
        #: who waits, by the descriptor of the client that is waited for
        self._held: dict[int, list[Client]] = {}

    def for_time(self, client: Client, packet: bytes, seconds: float, again: Callable[[], None]) -> None:
        """Make a publisher wait for some seconds, and then do ``again`` with a packet of his."""
        self._hold(client, packet, again, "rate")
        self._loop.later(seconds, partial(self._go_on_all, [client]))

    def for_reader(self, client: Client, packet: bytes, blocker: Client, again: Callable[[], None]) -> None:
        """Make a publisher wait until another client has read, and then do ``again`` with a packet of his."""
        self._hold(client, packet, again, "slow_reader")
        self._held.setdefault(blocker.fd, []).append(client)
        if blocker.look is None:
            self._look_soon(blocker)

    def _hold(self, client: Client, packet: bytes, again: Callable[[], None], reason: str) -> None:
        self._clients.counters.held[reason] += 1
        if client.waits is None:
            self.hold_packet(client, packet)
            client.kept.waits(packet)
        self.keep_waiting(client, again)

    @staticmethod
    def hold_packet(client: Client, packet: bytes) -> None:
        """Charge the user for the packet that has to wait."""
        client.waits = packet
        client.account.queue_bytes += len(packet) + ENTRY

    @staticmethod
    def release_packet(client: Client) -> None:
        """It waits no more, or its client is gone."""
        if client.waits is not None:
            client.account.queue_bytes -= len(client.waits) + ENTRY
            client.waits = None

    def keep_waiting(self, client: Client, again: Callable[[], None]) -> None:
        """Have ``again`` done when the client may go on, and do not read from it until then."""
        client.held = again
        client.watched &= ~(READABLE | HALF_CLOSED)
        self._loop.change(client.fd, client.watched)

    def go_on(self, client: Client, *, begun: bool = False) -> None:
        """What a client was held up for is over; ``begun`` if a daemon before us has begun to work on that."""
        again, client.held = client.held, None
        if again is None:
            return
        if not begun:
            client.kept.begins()
        try:
            again()
        except Exception:  # noqa: BLE001 - a bug of ours, which costs this client and nobody else
            self._stumble(client)
        if client.held is None:
            self.release_packet(client)
            client.kept.goes_on()
        if not begun:
            self._clients.settle()
        if client.open and client.held is None:
            client.watched |= READABLE | HALF_CLOSED
            if self._loop.watches(client.fd):
                self._loop.change(client.fd, client.watched)
            else:
                self._watch(client)

    def let_go_soon(self, blocker: Client) -> None:
        """A client has read what others wait for, does not want them to wait any more, or is gone."""
        if blocker.fd in self._held:
            self._loop.soon(partial(self._let_go, blocker))

    def _let_go(self, blocker: Client) -> None:
        self._go_on_all(self._held.pop(blocker.fd, []))

    def _go_on_all(self, clients: list[Client]) -> None:
        """Let some clients go on, as many as fit into their users' shares of this round; the others in the next."""
        for number, client in enumerate(clients):
            account = client.account
            if account.left_of(self._loop.rounds, self._clients.limits.share) <= 0.0:
                self._loop.later(0.0, partial(self._go_on_all, clients[number:]))
                return
            begun = time.monotonic()
            self.go_on(client)
            account.seconds += time.monotonic() - begun

    def try_again(self, client: Client) -> None:
        """What it waits for may be otherwise by now: other limits are in force."""
        if client.held is not None:
            self._loop.later(0.0, partial(self._go_on_all, [client]))

    def look_again(self, blocker: Client) -> None:
        """The patience that is allowed has changed."""
        if blocker.look is not None:
            blocker.look.cancel()
            self._look_soon(blocker)

    def _look_soon(self, blocker: Client) -> None:
        blocker.look = self._loop.later(0.0, partial(self._look, blocker))

    def _look(self, blocker: Client) -> None:
        """See to it that nobody waits for a client that has given up reading."""
        blocker.look = None
        if not blocker.open or blocker.fd not in self._held:
            return
        left = self._patience_left(blocker)
        if left <= 0:
            # The kernel says that a socket takes more only once most of what it holds was read; some it takes before.
            self._clients.flush(blocker)
            left = self._patience_left(blocker)
        if left > 0:
            blocker.look = self._loop.later(left, partial(self._look, blocker))
            return
        blocker.patient = False
        log.event(
            "client_not_reading",
            f"{blocker} has read nothing for {self._clients.limits.patience:g} s: those who publish to it no longer "
            "wait for it, and messages for it may be dropped",
            about=f"patience/{blocker.identity.decode('ascii')}",
            remedy="make it read",
            **log.peer_fields(blocker.peer, blocker.identity),
        )
        self._let_go(blocker)

    def _patience_left(self, blocker: Client) -> float:
        return blocker.progress + self._clients.limits.patience - time.monotonic()
