"""Publishers that wait: because their user publishes too fast, or for a client that has asked for it.

Invariant: a waiting publisher is not read from and loses nothing; the packet that was taken from it is tried again when
the wait is over. Publishers that wait for the same thing are tried in the order in which they came, only as many as can
go on. No publisher waits for a client that has gone, or that has read nothing for longer than allowed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from bccnd import log
from bccnd.bus.clients.client import Client
from bccnd.bus.clients.registry import ClientRegistry
from bccnd.bus.delivery.send_queues import SendQueues
from bccnd.core.sending.send_queue import ENTRY
from bccnd.core.sending.user_quota import UserAccount
from bccnd.net.loop import HALF_CLOSED, READABLE, Loop


class Backpressure:
    """Blocks publishers, and resumes them when ``queues`` have room."""

    def __init__(self, loop: Loop, registry: ClientRegistry, queues: SendQueues) -> None:
        self._loop = loop
        self._registry = registry
        self._queues = queues
        self._quota = registry.quota
        #: waiting publishers, by the descriptor of the client that they wait for
        self._blocked: dict[int, list[Client]] = {}
        queues.on_room = self._unblock_soon
        registry.on_end.append(self._forget)

    def block_for_rate(self, client: Client, packet: bytes, retry: Callable[[], None]) -> None:
        """Make a publisher wait until its user may publish one more message, then ``retry`` its packet."""
        self._block(client, packet, retry, "rate")
        account = client.account
        account.waiting[client] = None
        if account.timer is None:
            self._resume_later(account, 0.0)

    def _resume_later(self, account: UserAccount, seconds: float) -> None:
        account.timer = self._loop.later(seconds, partial(self._resume_next, account))

    def _resume_next(self, account: UserAccount) -> None:
        """Resume clients that wait for their user's rate, as many as it and the user's share of this round allow."""
        account.timer = None
        while account.waiting:
            if self._share_left(account) <= 0.0:
                self._resume_later(account, 0.0)
                return
            seconds = self._quota.publish(account, time.monotonic())
            if seconds:
                self._resume_later(account, seconds)
                return
            client, _ = account.waiting.popitem(last=False)
            self._resume_charged(client)

    def block_for_reader(self, client: Client, packet: bytes, blocker: Client, retry: Callable[[], None]) -> None:
        """Make a publisher wait until another client has read, then ``retry`` its packet."""
        self._block(client, packet, retry, "slow_reader")
        self._blocked.setdefault(blocker.fd, []).append(client)
        if blocker.patience_timer is None:
            self._check_patience_soon(blocker)

    def _block(self, client: Client, packet: bytes, retry: Callable[[], None], reason: str) -> None:
        self._queues.counters.held.add(reason)
        if client.blocked_packet is None:
            self.charge_packet(client, packet)
        self.keep_waiting(client, retry)

    @staticmethod
    def charge_packet(client: Client, packet: bytes) -> None:
        """Charge the user for the packet that has to wait."""
        client.blocked_packet = packet
        client.account.queue_bytes += len(packet) + ENTRY

    @staticmethod
    def release_packet(client: Client) -> None:
        """Take the charge back: the packet was processed, or its client has gone."""
        if client.blocked_packet is not None:
            client.account.queue_bytes -= len(client.blocked_packet) + ENTRY
            client.blocked_packet = None

    def keep_waiting(self, client: Client, retry: Callable[[], None]) -> None:
        """Stop reading from a client until it resumes with ``retry``."""
        client.resume = retry
        client.watched &= ~(READABLE | HALF_CLOSED)
        self._loop.change(client.fd, client.watched)

    def _forget(self, client: Client) -> None:
        """Remove a client that ends from all that wait, and resume those that wait for it."""
        client.resume = None
        if client.patience_timer is not None:
            client.patience_timer.cancel()
            client.patience_timer = None
        self.release_packet(client)
        client.account.waiting.pop(client, None)
        if client.account.timer is not None and not client.account.waiting:
            client.account.timer.cancel()
            client.account.timer = None
        self._unblock_soon(client)

    def resume(self, client: Client) -> None:
        """Try the packet of a blocked client again."""
        retry, client.resume = client.resume, None
        if retry is None:
            return
        client.account.waiting.pop(client, None)
        try:
            retry()
        except Exception:  # noqa: BLE001 - a bug here costs this client only
            self._registry.end_after_bug(client)
        if client.resume is None:
            self.release_packet(client)
        self._read_again(client)

    def _read_again(self, client: Client) -> None:
        if client.open and client.resume is None:
            client.watched |= READABLE | HALF_CLOSED
            if self._loop.watches(client.fd):
                self._loop.change(client.fd, client.watched)
            elif client.events is not None:
                self._loop.watch(client.fd, client.watched, client.events)

    def _unblock_soon(self, blocker: Client) -> None:
        """Resume the publishers that wait for a client: it has read, has changed its mode, or has gone."""
        if blocker.fd in self._blocked:
            self._loop.soon(partial(self._unblock, blocker))

    def _unblock(self, blocker: Client) -> None:
        self._resume_all(self._blocked.pop(blocker.fd, []), blocker)

    def _resume_all(self, clients: list[Client], blocker: Client | None = None) -> None:
        """Resume clients until ``blocker`` blocks one again; where a user's share of this round is used up, later."""
        postponed = []
        for number, client in enumerate(clients):
            if blocker is not None and blocker.open and blocker.fd in self._blocked:
                self._blocked[blocker.fd] += clients[number:]
                break
            if client in client.account.waiting:  # it waits for the rate by now
                continue
            if self._share_left(client.account) <= 0.0:
                postponed.append(client)
            else:
                self._resume_charged(client)
        if postponed:
            self._loop.later(0.0, partial(self._resume_all, postponed, blocker))

    def _share_left(self, account: UserAccount) -> float:
        return account.left_of(self._loop.rounds, self._quota.round_seconds)

    def _resume_charged(self, client: Client) -> None:
        """Resume a client, and charge the time that it takes to its user."""
        begun = time.monotonic()
        self.resume(client)
        client.account.seconds += time.monotonic() - begun

    def reconsider(self, client: Client) -> None:
        """Try again soon: other limits are in force."""
        account = client.account
        if client in account.waiting:
            if account.timer is not None:
                account.timer.cancel()
            self._resume_later(account, 0.0)
        elif client.resume is not None:
            self._loop.later(0.0, partial(self._resume_all, [client]))
        if client.patience_timer is not None:
            client.patience_timer.cancel()
            self._check_patience_soon(client)

    def _check_patience_soon(self, blocker: Client) -> None:
        blocker.patience_timer = self._loop.later(0.0, partial(self._check_patience, blocker))

    def _check_patience(self, blocker: Client) -> None:
        """Resume the publishers that wait for a client that has stopped reading."""
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
        self._unblock(blocker)

    def _patience_left(self, blocker: Client) -> float:
        return blocker.progress + self._queues.limits.patience - time.monotonic()
