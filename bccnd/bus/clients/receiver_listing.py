"""Describes clients, and which clients and gateways receive the messages of a channel, by which of their patterns.

The work of one answer is bounded: it names `MAX_NAMED` clients, and looks at patterns of `MAX_LEVELS` levels in all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Final

from bccnd import snapshot
from bccnd.bus.clients.client import Client
from bccnd.core.matching.pattern_tree import PatternTree
from bccnd.core.matching.routes import Routes
from bccnd.errors import BadDatagram

#: clients that an answer names, patterns of each, and characters of a pattern
MAX_NAMED: Final = 50
MAX_PATTERNS: Final = 8
_MAX_TEXT: Final = 128
#: levels of patterns that an answer looks at, over all clients: some milliseconds
MAX_LEVELS: Final = 4096


def describe_client(client: Client, patterns: Iterable[bytes]) -> snapshot.ClientState:
    """Return the row of a client, with the first of these patterns."""
    return snapshot.ClientState(
        identity=client.identity.decode("ascii"),
        program=client.peer.program.decode("ascii"),
        pid=client.peer.pid,
        uid=client.peer.uid,
        since=round(client.since, 3),
        dialect=client.dialect.name,
        subscriptions=client.subscriptions,
        patterns=_texts(patterns),
        published=client.published,
        waits=client.retry is not None,
        queued=client.queue.messages,
        queued_bytes=client.queue.bytes,
        lost=client.lost,
    )


def _texts(patterns: Iterable[bytes]) -> list[str]:
    return [one.decode("utf-8", "backslashreplace")[:_MAX_TEXT] for one in islice(patterns, MAX_PATTERNS)]


def describe_receivers(routes: Routes[int], clients: Mapping[int, Client], chan: bytes) -> dict[str, Any]:
    """Return the receivers of a channel, each with the patterns that match (none if there are too many to compare, or
    if the message is addressed to it), the messages in its queue and those lost so far; and the gateways of links, for
    datagrams from a link (``links``) and for others (``links_here``)."""
    try:
        route = routes.find(chan)
        found = route.plain.all + route.meta.all
    except BadDatagram:
        found = routes.local(chan).all
    receivers = routes.present(found)
    levels = MAX_LEVELS
    rows = []
    for client in [clients[fd] for fd in receivers[:MAX_NAMED]]:
        patterns: list[bytes] = []
        held = routes.patterns(client.fd)
        if not chan.startswith(b"!") and len(held) <= levels:
            cost = sum(routes.levels_of(client.fd, text) for text in held)
            if cost <= levels:
                patterns = _matching(client, held, chan)
            levels -= min(cost, levels)
        rows.append(
            {
                "identity": client.identity.decode("ascii"),
                "patterns": _texts(patterns),
                "queued": client.queue.messages,
                "lost": client.lost,
            }
        )
    links, here = (
        [clients[fd].identity.decode("ascii") for fd in routes.present(gateways.all)]
        for gateways in (routes.links, routes.links_here)
    )
    more = max(0, len(receivers) - MAX_NAMED)
    return {"receivers": rows, "more_receivers": more, "links": links, "links_here": here}


def _matching(client: Client, held: Iterable[bytes], chan: bytes) -> list[bytes]:
    """Return the patterns that match a plain channel."""
    tree: PatternTree[bytes] = PatternTree(client.dialect)
    for text in held:
        if not text.startswith(b"!"):
            tree.add(tree.compile(text), text)
    return list(tree.match(chan))
