"""Dispatches the frames of clients that are not published: subscriptions, control messages, datagrams of links."""

from __future__ import annotations

from bccnd.bus.clients.client import Client
from bccnd.bus.clients.subscriptions import Subscriptions
from bccnd.bus.delivery.replies import Replies
from bccnd.bus.requests.control import Control
from bccnd.bus.requests.gateway_requests import GatewayRequests
from bccnd.core.matching.patterns import MAX_PATTERN
from bccnd.core.wire import frames


class RequestDispatcher:
    """Passes each frame to the part that its verb names."""

    def __init__(
        self, subscriptions: Subscriptions, gateways: GatewayRequests, control: Control, replies: Replies
    ) -> None:
        self._subscriptions = subscriptions
        self._gateways = gateways
        self._control = control
        self._replies = replies

    def process(self, client: Client, verb: bytes, key: bytes, payload: bytes) -> None:
        """Process a frame that is no message, or a message of a gateway."""
        if verb == frames.SUB:
            refused = self._subscriptions.subscribe(client, key)
            if refused:
                self._replies.refuse(client, refused, key[:64] if refused == "pattern_too_long" else key)
        elif verb == frames.UNSUB:
            if not self._subscriptions.unsubscribe(client, key):
                self._replies.refuse(client, "not_subscribed", key[:MAX_PATTERN])
        elif verb == frames.MSG:
            self._gateways.bring(client, payload)
        else:
            self._control.process(client, key, payload)
