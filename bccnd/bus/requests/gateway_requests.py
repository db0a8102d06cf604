"""Processes what gateways send: datagrams of links, and reports. Both need the right to link."""

from __future__ import annotations

from bccnd.bus.clients.client import Client
from bccnd.bus.delivery.replies import Replies
from bccnd.bus.requests.gateway_links import GatewayLinks
from bccnd.core.wire import frames


class GatewayRequests:
    """Passes requests to ``links``, or refuses them: the daemon sets ``links`` as soon as it can judge datagrams."""

    def __init__(self, replies: Replies) -> None:
        self._replies = replies
        self.links: GatewayLinks | None = None

    def bring(self, client: Client, payload: bytes) -> None:
        """Pass on a datagram of a link. Like a segment's datagrams, it is not counted against a user."""
        if not client.rights.link:
            self._replies.refuse(client, "not_permitted", frames.LINK)
        elif self.links is None or not self.links.bring(payload):
            self._replies.refuse(client, "no_link", frames.LINK)

    def report(self, client: Client, report: bytes) -> None:
        """Keep the report of a gateway."""
        if not client.rights.link:
            self._replies.refuse(client, "not_permitted", frames.GATEWAY)
        elif self.links is None or not self.links.report(client, report):
            self._replies.refuse(client, "bad_report", frames.GATEWAY)
        else:
            self._replies.answer(client, frames.GATEWAY, b"")
