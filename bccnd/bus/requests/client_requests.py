"""Executes requests of clients: subscriptions, modes that a client sets for itself, and questions to the daemon.

Invariant: every request has one handler here; an unknown one is refused, never ignored. Source: sbus, "Control
message", "Flood control", "Echos".
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any, Final, NamedTuple

from bccnd import snapshot
from bccnd.bus.clients.client import HARD_MODES, SOFT_MODES, Client
from bccnd.bus.clients.receiver_listing import describe_client, describe_receivers
from bccnd.bus.clients.registry import ClientRegistry
from bccnd.bus.clients.subscriptions import Subscriptions
from bccnd.bus.delivery.fanout import Fanout
from bccnd.bus.delivery.replies import Replies
from bccnd.bus.requests.gateway_links import GatewayLinks
from bccnd.bus.requests.recorder_reports import RecorderReports
from bccnd.core.matching.patterns import DIALECTS, MAX_PATTERN, Dialect
from bccnd.core.matching.routes import Routes
from bccnd.core.sending.send_queue import ORDERS, QUEUE
from bccnd.core.wire import frames
from bccnd.errors import BadMessage

#: entries in one page of a listing, so that a page is made in well under a millisecond
PAGE: Final = 100
#: and characters after which a page ends all the same, so that it fits in a packet
PAGE_SIZE: Final = 65_536
#: unfinished listings of a user, which hold up to 80 KB each: names of 10,000 sources
MAX_UNFINISHED: Final = 8

Handler = Callable[[Client, bytes], None]
#: yields rows, and None where a page ends because the next rows take work
Listing = Callable[[], Iterable[Any]]


class Setting(NamedTuple):
    """Something that a client sets for itself: the values that control messages choose, the one that a new client has,
    and how it is read and set."""

    values: Mapping[bytes, Any]
    default: Any
    get: Callable[[Client], Any]
    put: Callable[[Client, Any], None]


def _attribute(name: str) -> tuple[Callable[[Client], Any], Callable[[Client, Any], None]]:
    return attrgetter(name), lambda client, value: setattr(client, name, value)


class ClientRequests:
    """Processes the requests of the clients in ``registry``.

    ``recorders`` keeps the reports of recorders. ``listings`` are those of `!/bccn/stats` beside clients and users, by
    name. ``trace`` explains the verdict that a datagram would get; without it there is no tap. The daemon sets
    ``links`` as soon as it can judge datagrams of links.
    """

    def __init__(
        self,
        routes: Routes[int],
        registry: ClientRegistry,
        subscriptions: Subscriptions,
        fanout: Fanout,
        replies: Replies,
        recorders: RecorderReports | None,
        listings: Mapping[bytes, Listing],
        trace: Callable[[bytes], dict[str, Any]] | None,
    ) -> None:
        self.links: GatewayLinks | None = None
        self._routes = routes
        self._subscriptions = subscriptions
        self._clients = registry.by_fd
        self._quota = registry.quota
        self._identities = registry.identities
        self._fanout = fanout
        self._replies = replies
        self._recorders = recorders
        registry.on_end.append(self._drop_listing)
        self._listings = {b"clients": self._list_clients, b"users": self._list_users, **listings}
        self._handlers: dict[bytes, Handler] = {
            frames.CRED_WHOAMI: self._cred_whoami,
            frames.WHOAMI: lambda client, _: replies.answer(client, frames.WHOAMI, client.identity),
            frames.SYNC: lambda client, payload: replies.answer(client, frames.SYNC, payload),
            frames.STATS: self._stats,
            frames.TAG: self._tag,
            frames.DIALECT: self._dialect,
            frames.GATEWAY: self._on_gateway_report,
            frames.RECORDER: self._on_recorder_report,
        }
        self._settings = self._make_settings()
        #: the setting and its value that a control message chooses
        self._choices = {key: (one, value) for one in self._settings for key, value in one.values.items()}
        if trace is not None:
            self._trace = trace
            self._handlers[frames.TRACE] = self._on_trace
            self._handlers[frames.RECEIVERS] = self._on_receivers

    def _make_settings(self) -> tuple[Setting, ...]:
        routes, fanout, queues = self._routes, self._fanout, self._fanout.queues
        return (
            Setting(
                {frames.META_ON: True, frames.META_OFF: False},
                False,
                lambda client: routes.wants_meta(client.fd),
                lambda client, wanted: routes.set_meta(client.fd, wanted),
            ),
            Setting({frames.BATCH_ON: True, frames.BATCH_OFF: False}, False, fanout.in_batch, fanout.set_batch),
            Setting({frames.LOCAL_ON: True, frames.LOCAL_OFF: False}, False, *_attribute("local")),
            Setting({frames.ECHO + b"on": True, frames.ECHO + b"off": False}, True, *_attribute("echo")),
            Setting(
                {frames.SOFT + mode: mode for mode in SOFT_MODES},
                b"queue",
                lambda client: client.soft,
                lambda client, mode: queues.set_mode(client, soft=mode),
            ),
            Setting(
                {frames.HARD + mode: mode for mode in HARD_MODES},
                b"discard",
                lambda client: client.hard,
                lambda client, mode: queues.set_mode(client, hard=mode),
            ),
            Setting(
                {frames.ORDER + name: order for name, order in ORDERS.items()},
                QUEUE,
                lambda client: client.queue.order,
                lambda client, order: client.queue.set_order(order),
            ),
        )

    def process(self, client: Client, verb: bytes, key: bytes, payload: bytes) -> None:
        """Process a frame that is not published: a request, or a datagram that a gateway brings."""
        if verb == frames.SUB:
            refused = self._subscriptions.subscribe(client, key)
            if refused:
                self._replies.refuse(client, refused, key[:64] if refused == "pattern_too_long" else key)
        elif verb == frames.UNSUB:
            if not self._subscriptions.unsubscribe(client, key):
                self._replies.refuse(client, "not_subscribed", key[:MAX_PATTERN])
        elif verb == frames.MSG:
            self._pass_on(client, payload)
        else:
            self._process_control(client, key, payload)

    def _process_control(self, client: Client, key: bytes, payload: bytes) -> None:
        """Set the mode that a control message chooses, or call its handler."""
        chosen = self._choices.get(key)
        handler = self._handlers.get(key)
        if chosen is not None:
            setting, value = chosen
            setting.put(client, value)
            client.note(frames.control(key, payload))
        elif handler is not None:
            handler(client, payload)
        else:
            self._replies.refuse(client, "unknown_control", key)

    def replay(self, client: Client, frame: bytes) -> bool:
        """Apply a control message of a restored client without an answer; return False for an unknown one."""
        _, key, payload = frames.read(frame)
        if key in self._choices:
            setting, value = self._choices[key]
            setting.put(client, value)
        elif key == frames.DIALECT:
            self._set_dialect(client, DIALECTS[payload.decode("ascii")])
        elif key == frames.TAG:
            with contextlib.suppress(BadMessage):  # the rules for names may have changed
                self._identities.tag(client, payload)
        else:
            return False
        return True

    def requests_of(self, client: Client) -> Iterator[bytes]:
        """Yield the control messages that set the modes of this client for a new one."""
        if client.identity != client.base:
            yield frames.control(frames.TAG, client.identity[len(client.base) + 1 :])
        for setting in self._settings:
            current = setting.get(client)
            if current != setting.default:
                yield from (frames.control(key, b"") for key, value in setting.values.items() if value == current)

    def _cred_whoami(self, client: Client, _payload: bytes) -> None:
        peer = client.peer
        self._replies.answer(client, frames.CRED_WHOAMI, b"!/cred/%d/%d/%d" % (peer.gid, peer.uid, peer.pid))

    def _tag(self, client: Client, tag: bytes) -> None:
        if not client.rights.tag:
            self._replies.refuse(client, "not_permitted", frames.TAG)
            return
        try:
            self._identities.tag(client, tag)
        except BadMessage as bad:
            self._replies.refuse(client, bad.reason, tag[:64])
        else:
            client.note(frames.control(frames.TAG, tag))

    def _dialect(self, client: Client, name: bytes) -> None:
        """Change the dialect of a client that holds no pattern: in another one it would mean something else."""
        dialect = DIALECTS.get(name.decode("ascii", "replace"))
        if dialect is None or client.subscriptions:
            self._replies.refuse(client, "unknown_dialect" if dialect is None else "subscribed", frames.DIALECT)
        else:
            self._set_dialect(client, dialect)
            client.note(frames.control(frames.DIALECT, name))

    def _set_dialect(self, client: Client, dialect: Dialect) -> None:
        """Choose the dialect of the patterns to come of a client that holds none."""
        client.dialect = dialect
        self._routes.set_dialect(client.fd, dialect)

    def _pass_on(self, client: Client, payload: bytes) -> None:
        """Pass on a datagram of a link. Like a segment's datagrams, it is not charged to a user."""
        if not client.rights.link:
            self._replies.refuse(client, "not_permitted", frames.LINK)
        elif self.links is None or not self.links.bring(payload):
            self._replies.refuse(client, "no_link", frames.LINK)

    def _on_gateway_report(self, client: Client, report: bytes) -> None:
        if not client.rights.link:
            self._replies.refuse(client, "not_permitted", frames.GATEWAY)
        elif self.links is None or not self.links.report(client, report):
            self._replies.refuse(client, "bad_report", frames.GATEWAY)
        else:
            self._replies.answer(client, frames.GATEWAY, b"")

    def _on_recorder_report(self, client: Client, report: bytes) -> None:
        if not client.rights.tap:
            self._replies.refuse(client, "not_permitted", frames.RECORDER)
        elif self._recorders is None or not self._recorders.report(client, report):
            self._replies.refuse(client, "bad_report", frames.RECORDER)

    def _on_trace(self, client: Client, datagram: bytes) -> None:
        self._answer_tap(client, frames.TRACE, lambda: self._trace(datagram))

    def _on_receivers(self, client: Client, chan: bytes) -> None:
        self._answer_tap(client, frames.RECEIVERS, lambda: describe_receivers(self._routes, self._clients, chan))

    def _answer_tap(self, client: Client, key: bytes, make: Callable[[], dict[str, Any]]) -> None:
        """Answer a client that has the right to tap."""
        if client.rights.tap:
            self._replies.answer(client, key, json.dumps(make()).encode("ascii"))
        else:
            self._replies.refuse(client, "not_permitted", key)

    def _stats(self, client: Client, topic: bytes) -> None:
        """Answer with a page of a listing: the first by its name, the following ones by ``more``."""
        if topic != b"more":
            listing = self._listings.get(topic or b"daemon")
            if listing is None:
                self._replies.refuse(client, "unknown_listing", topic[:64])
                return
            client.listing = iter(listing())
        if client.listing is None:
            self._replies.refuse(client, "listing_dropped", frames.STATS)
            return
        rows: list[str] = []
        size = 0
        for row in client.listing:
            if row is not None:
                rows.append(snapshot.to_json(row))
                size += len(rows[-1])
            if row is None or len(rows) == PAGE or size > PAGE_SIZE:
                more = "true"
                self._keep_listing(client)
                break
        else:
            more = "false"
            self._drop_listing(client)
            client.listing = iter(())
        page = f'{{"items":[{",".join(rows)}],"more":{more}}}'
        self._replies.answer(client, frames.STATS, page.encode("ascii"))

    def _keep_listing(self, client: Client) -> None:
        """Keep the rest of a client's listing, in place of the user's listing that has waited longest."""
        unfinished = client.account.listings
        unfinished[client] = None
        unfinished.move_to_end(client)
        if len(unfinished) > MAX_UNFINISHED:
            self._drop_listing(next(iter(unfinished)))

    @staticmethod
    def _drop_listing(client: Client) -> None:
        """Free the rest of a client's listing."""
        client.listing = None
        client.account.listings.pop(client, None)

    def _list_users(self) -> Iterator[dict[str, Any]]:
        for account in self._quota:
            yield {
                "uid": account.uid,
                "clients": account.clients,
                "subscriptions": account.subscriptions,
                "queued_bytes": account.queue_bytes,
            }

    def _list_clients(self) -> Iterator[snapshot.ClientState]:
        for fd in list(self._clients):  # an unfinished listing holds no clients that have gone
            client = self._clients.get(fd)
            if client is not None:
                yield describe_client(client, self._routes.patterns(fd))
