"""Blocks publishers whose user publishes too fast, or whose receiver has asked for it.

Invariant: a blocked publisher is not read from and loses nothing; its last packet is tried again when it is unblocked.
Publishers that are blocked for the same reason are unblocked in the order in which they came, only as many as can go
on. A client that has gone, or that has read nothing for longer than allowed, blocks no publisher.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from bccnd import log
from bccnd.bus.clients.client import Client
from bccnd.bus.clients.registry import ClientRegistry
from bccnd.bus.delivery.client_queues import ClientQueues
from bccnd.core.sending.send_queue import ENTRY
from bccnd.core.sending.user_quota import UserAccount
from bccnd.net.loop import HALF_CLOSED, READABLE, Loop


class Backpressure:
    """Blocks publishers, and unblocks them when ``queues`` have room."""

    def __init__(self, loop: Loop, registry: ClientRegistry, queues: ClientQueues) -> None:
        self._loop = loop
        self._registry = registry
        self._queues = queues
        self._quota = registry.quota
        #: blocked publishers, by the descriptor of the client that blocks them
        self._blocked: dict[int, list[Client]] = {}
        queues.on_room = self._unblock_publishers_soon
        registry.on_end.append(self._forget)

    def block_for_rate(self, client: Client, packet: bytes, retry: Callable[[], None]) -> None:
        """Block a publisher until its user may publish one more message; then call ``retry``."""
        self._queues.counters.held.add("rate")
        self.block(client, packet, retry)
        account = client.account
        account.blocked[client] = None
        if account.timer is None:
            self._unblock_next_later(account, 0.0)

    def block_for_reader(self, client: Client, packet: bytes, blocker: Client, retry: Callable[[], None]) -> None:
        """Block a publisher until another client has read; then call ``retry``."""
        self._queues.counters.held.add("slow_reader")
        self.block(client, packet, retry)
        self._blocked.setdefault(blocker.fd, []).append(client)
        if blocker.patience_timer is None:
            self._check_patience_soon(blocker)

    def block(self, client: Client, packet: bytes, retry: Callable[[], None]) -> None:
        """Stop reading from a client, and charge its user for the packet, until `unblock` calls ``retry``."""
        if client.blocked_packet is None:
            client.blocked_packet = packet
            client.account.queue_bytes += len(packet) + ENTRY
        client.retry = retry
        client.watched &= ~(READABLE | HALF_CLOSED)
        self._loop.change(client.fd, client.watched)

    @staticmethod
    def _release_packet(client: Client) -> None:
        """Take the charge back: the packet was processed, or its client has gone."""
        if client.blocked_packet is not None:
            client.account.queue_bytes -= len(client.blocked_packet) + ENTRY
            client.blocked_packet = None

    def unblock(self, client: Client) -> None:
        """Try the packet of a blocked client again, and read from the client unless the packet blocks it again."""
        retry, client.retry = client.retry, None
        if retry is None:
            return
        client.account.blocked.pop(client, None)
        try:
            retry()
        except Exception:  # noqa: BLE001 - a bug here costs this client only
            self._registry.end_after_bug(client)
        if client.retry is None:
            self._release_packet(client)
            self._read_again(client)

    def _read_again(self, client: Client) -> None:
        """Read from a client again, unless it has gone."""
        if client.open:
            client.watched |= READABLE | HALF_CLOSED
            if self._loop.watches(client.fd):
                self._loop.change(client.fd, client.watched)
            elif client.events is not None:
                self._loop.watch(client.fd, client.watched, client.events)

    def _unblock_charged(self, client: Client) -> None:
        """Unblock a client, and charge the time that it takes to its user."""
        begun = time.monotonic()
        self.unblock(client)
        client.account.seconds += time.monotonic() - begun

    def _share_left(self, account: UserAccount) -> float:
        return account.left_of(self._loop.rounds, self._quota.round_seconds)

    def _forget(self, client: Client) -> None:
        """Forget a client that ends as a publisher, and unblock those that it blocks."""
        client.retry = None
        if client.patience_timer is not None:
            client.patience_timer.cancel()
            client.patience_timer = None
        self._release_packet(client)
        client.account.blocked.pop(client, None)
        if client.account.timer is not None and not client.account.blocked:
            client.account.timer.cancel()
            client.account.timer = None
        self._unblock_publishers_soon(client)

    # -- by the rate of a user

    def _unblock_next_later(self, account: UserAccount, seconds: float) -> None:
        account.timer = self._loop.later(seconds, partial(self._unblock_next, account))

    def _unblock_next(self, account: UserAccount) -> None:
        """Unblock clients of a user, as many as its rate and its share of this round allow."""
        account.timer = None
        while account.blocked:
            if self._share_left(account) <= 0.0:
                self._unblock_next_later(account, 0.0)
                return
            seconds = self._quota.publish(account, time.monotonic())
            if seconds:
                self._unblock_next_later(account, seconds)
                return
            client, _ = account.blocked.popitem(last=False)
            self._unblock_charged(client)

    # -- by a client that does not read

    def _unblock_publishers_soon(self, blocker: Client) -> None:
        """Unblock the publishers of a client that has read, has changed its mode, or has gone."""
        if blocker.fd in self._blocked:
            self._loop.soon(partial(self._unblock_publishers, blocker))

    def _unblock_publishers(self, blocker: Client) -> None:
        self._unblock_all(self._blocked.pop(blocker.fd, []), blocker)

    def _unblock_all(self, clients: list[Client], blocker: Client | None = None) -> None:
        """Unblock clients until ``blocker`` blocks one again; where a user's share of this round is used up, later."""
        postponed = []
        for number, client in enumerate(clients):
            if blocker is not None and blocker.open and blocker.fd in self._blocked:
                self._blocked[blocker.fd] += clients[number:]
                break
            if client in client.account.blocked:  # the rate blocks it by now
                continue
            if self._share_left(client.account) <= 0.0:
                postponed.append(client)
            else:
                self._unblock_charged(client)
        if postponed:
            self._loop.later(0.0, partial(self._unblock_all, postponed, blocker))

    # -- with other limits

    def unblock_soon(self, client: Client) -> None:
        """Try the packet of a client again soon, if it is blocked."""
        account = client.account
        if client in account.blocked:
            if account.timer is not None:
                account.timer.cancel()
            self._unblock_next_later(account, 0.0)
        elif client.retry is not None:
            self._loop.later(0.0, partial(self._unblock_all, [client]))

    def apply_limits(self, client: Client) -> None:
        """Apply limits that have changed to a client that is blocked, or that blocks others."""
        self.unblock_soon(client)
        if client.patience_timer is not None:
            client.patience_timer.cancel()
            self._check_patience_soon(client)

    def _check_patience_soon(self, blocker: Client) -> None:
        blocker.patience_timer = self._loop.later(0.0, partial(self._check_patience, blocker))

    def _check_patience(self, blocker: Client) -> None:
        """Unblock the publishers of a client that has stopped reading."""
        blocker.patience_timer = None
        if not blocker.open or blocker.fd not in self._blocked:
            return
        left = self._patience_left(blocker)
        if left <= 0:
            # The kernel reports a socket writable only once most of what it holds was read; some room is there before.
            self._queues.flush(blocker)
            left = self._patience_left(blocker)
        if left > 0:
            blocker.patience_timer = self._loop.later(left, partial(self._check_patience, blocker))
            return
        blocker.patient = False
        log.event(
            "client_not_reading",
            f"{blocker} has read nothing for {self._queues.limits.patience:g} s: its publishers no longer wait for it, "
            "and messages for it may be dropped",
            about=f"patience/{blocker.identity.decode('ascii')}",
            remedy="make it read",
            **log.peer_fields(blocker.peer, blocker.identity),
        )
        self._unblock_publishers(blocker)

    def _patience_left(self, blocker: Client) -> float:
        return blocker.progress + self._queues.limits.patience - time.monotonic()
