"""Connects the commands to the daemon, receives from it, and reports what it refuses."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from bccnd.cli.shared.output import NO_DAEMON, REFUSED, TIMED_OUT, fail, print_notice, visible
from bccnd.client.bus import Connection, connect
from bccnd.client.event_queues import Event, Gap, Reconnected, Refusal
from bccnd.client.message import Message, to_bytes
from bccnd.core.wire import frames
from bccnd.errors import BusError

T = TypeVar("T")

_LOCAL: Final = "; only programs of this host received it"
#: what a refusal means, and what helps
REFUSALS: Final = {
    "bad_channel": f"is not a valid channel (1 to 1024 graphic ASCII characters without : and |){_LOCAL}",
    "bad_target": "is not a valid target (it begins with ? or /); it was delivered to no program",
    "too_long": f"does not fit in a datagram of 1400 bytes{_LOCAL}",
    "send_failed": "could not be broadcast on a segment; its hosts did not receive it (see the daemon's log)",
    "not_perl_safe": f"holds characters that readers of the Perl module discard (names: perl-safe){_LOCAL}",
    "no_signing_key": f"cannot be signed, because this host has no private key (integrity.keys){_LOCAL}",
    "reserved_key": "is reserved for the daemon",
    "not_permitted": "is not permitted to you (see access in the daemon's configuration)",
    "pattern_too_long": "is too long for a pattern (at most 1024 bytes and 64 levels)",
    "too_many_subscriptions": "exceeds the limit of patterns or of their memory (bus.max_subscriptions for each "
    "client, bus.user.subscriptions for all of your user)",
    "too_many_wildcards": "exceeds the limit of wildcards in all patterns of your user (bus.user.wildcards)",
    "frame_too_long": "is too long for the bus",
    "bad_tag": "is not a valid tag: a tag is one word of at most 32 characters that are valid in names",
    "unknown_control": "is unknown to this bus: it has no segments (bccn-sbusd), or is older than this tool",
}
#: the same for a refusal that is about no key: of everything, or of the connection
CONNECTION_REFUSALS: Final = {
    "not_permitted": "you may not subscribe to everything (see access in the daemon's configuration)",
    "not_admitted": "you may not connect (see mode and group of the socket in the daemon's configuration)",
    "too_many_clients": "the daemon serves its maximum of clients (bus.max_clients)",
    "too_many_clients_of_user": "the daemon serves its maximum of clients of your user (bus.user.clients)",
}


@contextmanager
def open_bus(path: str | None, *, reconnect: bool = False) -> Iterator[Connection]:
    """Connect to the daemon; an error ends the command with a message."""
    try:
        bus = connect(path, reconnect=reconnect)
    except BusError as error:
        fail(explain_unreachable(error), NO_DAEMON)
    with bus:
        try:
            yield bus
        except BusError as error:
            fail(*describe_failure(bus, error))


def explain_unreachable(error: BusError) -> str:
    """Describe why no daemon can be reached, with a remedy."""
    if error.reason == "connection_lost":
        return error.detail
    remedy = "start it (systemctl start bccnd), or name its socket with --socket"
    if isinstance(error.__cause__, PermissionError):
        remedy = "become a member of the socket's group (adduser NAME bccn), and log in again"
    return f"{error.detail}\n  remedy: {remedy}"


def describe_failure(bus: Connection, error: BusError) -> tuple[str, int]:
    """Describe an error, with its exit code; of a refused connection by the refusal, which arrived before the
    connection ended."""
    if error.reason in ("unknown_listing", "unknown_control"):
        old = f"the bus at {bus.path} cannot answer: it has no segments (bccn-sbusd), or is older than this tool"
        return old, REFUSED
    if error.reason == "no_answer":
        return error.detail, TIMED_OUT
    if error.reason != "connection_lost":
        return error.detail, REFUSED
    try:
        while (event := bus.receive(0)) is not None:
            if isinstance(event, Refusal) and not event.key:
                return explain(event), REFUSED
    except BusError:
        pass
    return error.detail, NO_DAEMON


def explain(refusal: Refusal) -> str:
    """Describe a refusal."""
    if not refusal.key and refusal.reason in CONNECTION_REFUSALS:
        return CONNECTION_REFUSALS[refusal.reason]
    return f"'{visible(refusal.key)}' {REFUSALS.get(refusal.reason, f'was refused: {visible(refusal.reason)}')}"


def set_tag(bus: Connection, tag: str | None) -> None:
    if tag:
        try:
            bus.tag(tag)
        except BusError as error:
            if error.reason in ("bad_tag", "not_permitted"):
                fail(explain(Refusal(error.reason, tag)), REFUSED)
            raise


def receive_until(deadline: float | None, receive: Callable[[float | None], T | None]) -> Iterator[T]:
    """Yield what ``receive`` returns until ``deadline`` (monotonic), however fast it comes."""
    left = None
    while left is None or left > 0:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        if (got := receive(left)) is None:
            return
        yield got


def receive_messages(
    bus: Connection, deadline: float | None, what: str = "messages", *, quiet: bool = False
) -> Iterator[Message]:
    """Yield messages until ``deadline`` (monotonic). Losses and reconnects are reported unless ``quiet``; a refusal
    ends the command."""

    def receive(timeout: float | None) -> Event | None:
        event = bus.receive(0)
        if event is None and timeout != 0:
            sys.stdout.flush()
            event = bus.receive(timeout)
        return event

    for event in receive_until(deadline, receive):
        if isinstance(event, Message):
            yield event
        elif isinstance(event, Refusal):
            fail(explain(event), REFUSED)
        elif not quiet and isinstance(event, Gap):
            if event.lost:
                print_notice(f"{event.lost} {what} were lost here: this reader is too slow")
            else:
                print_notice(f"an unknown number of {what} was lost here: the daemon was killed or has crashed")
        elif not quiet and isinstance(event, Reconnected):
            report_absence(event, f"{what} of that time are missing")


def report_absence(event: Reconnected, effect: str) -> None:
    print_notice(f"the daemon was away for {event.seconds:.1f} s at most, and is back; {effect}")


def matcher(patterns: Sequence[str]) -> Callable[[bytes], bool]:
    """Return a test whether a channel matches one of the patterns, in the dialect ``path``."""
    from bccnd.core.matching.pattern_tree import PatternTree
    from bccnd.core.matching.patterns import DIALECTS

    tree: PatternTree[None] = PatternTree(DIALECTS["path"])
    for pattern in patterns:
        tree.add(tree.compile(to_bytes(pattern)), None)
    return lambda chan: bool(tree.match(chan))


def fetch_listing(bus: Connection, topic: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a listing, fetched page by page."""
    asked = topic.encode("ascii")
    while True:
        page = json.loads(bus.ask(frames.STATS, asked))
        yield from page["items"]
        if not page["more"]:
            return
        asked = b"more"
