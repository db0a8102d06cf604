"""Adds and removes the patterns of clients, within their rights and limits."""

from __future__ import annotations

from collections.abc import Iterable

from bccnd.bus.clients.client import BusRules, Client
from bccnd.core.matching import credential_keys
from bccnd.core.matching.patterns import MAX_LEVELS, MAX_PATTERN
from bccnd.core.matching.routes import Routes
from bccnd.core.sending.user_quota import pattern_bytes
from bccnd.core.wire import frames


class Subscriptions:
    """Adds and removes patterns in ``routes``, and notes them in the client's record for the next daemon."""

    def __init__(self, routes: Routes[int], rules: BusRules) -> None:
        self._routes = routes
        self._rules = rules

    def subscribe(self, client: Client, pattern: bytes) -> str:
        """Add a pattern; return why it was refused, empty if it was not."""
        limits = self._rules.bus
        if len(pattern) > MAX_PATTERN or self._routes.levels_of(client.fd, pattern) > MAX_LEVELS:
            return "pattern_too_long"
        patterns = _meant_by(client, pattern)
        if not patterns or not all(_may_hold(client, one) for one in patterns):
            return "not_permitted"
        if (
            client.subscriptions + len(patterns) > limits.max_subscriptions
            or client.account.subscriptions + len(patterns) > limits.user.subscriptions
            or self._routes.bytes_of(client.peer.uid) > pattern_bytes(limits.user.subscriptions)
        ):
            return "too_many_subscriptions"
        if not self._routes.has_room(client.fd, patterns, limits.user.wildcards):
            return "too_many_wildcards"
        for one in patterns:
            self.add(client, one)
        return ""

    def add(self, client: Client, pattern: bytes) -> None:
        """Add a pattern without checking rights and limits."""
        client.note(frames.subscribe(pattern))
        self._routes.subscribe(client.fd, pattern)
        client.subscriptions += 1
        client.account.subscriptions += 1

    def unsubscribe(self, client: Client, pattern: bytes) -> bool:
        """Remove a pattern; return whether the client held it."""
        return self.remove(client, _meant_by(client, pattern)) > 0

    def remove(self, client: Client, patterns: Iterable[bytes]) -> int:
        """Remove patterns; return how many of them the client held."""
        held = 0
        for one in patterns:
            if self._routes.unsubscribe(client.fd, one):
                client.note(frames.unsubscribe(one))
                held += 1
        client.subscriptions -= held
        client.account.subscriptions -= held
        return held

    def frames_of(self, client: Client) -> list[bytes]:
        """Return the frames that subscribe a new client to the patterns of this one."""
        held = self._routes.patterns(client.fd).items()
        return [frames.subscribe(pattern) for pattern, count in held for _ in range(count)]

    def remove_forbidden(self, client: Client) -> list[bytes]:
        """Remove the patterns that the client may not hold any more; return them."""
        forbidden = []
        for pattern, count in list(self._routes.patterns(client.fd).items()):
            if not _may_hold(client, pattern):
                self.remove(client, [pattern] * count)
                forbidden.append(pattern)
        return forbidden


def _meant_by(client: Client, pattern: bytes) -> list[bytes]:
    """Return the patterns that one stands for: of one for credentials, those for this client."""
    if not pattern.startswith(credential_keys.PREFIX):
        return [pattern]
    peer = client.peer
    return credential_keys.own_patterns(pattern, peer.gid, peer.uid, peer.pid) or []


def _may_hold(client: Client, pattern: bytes) -> bool:
    if pattern.startswith(frames.TAP):
        return client.rights.tap
    if pattern.startswith(frames.LINK):
        return client.rights.link and pattern in (frames.LINK, frames.LINK_HERE)
    allowed = client.rights.subscribe
    return allowed is None or allowed.covers(pattern, client.dialect)
