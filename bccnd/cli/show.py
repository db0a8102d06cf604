"""What the commands of `bccn` share: how they reach the daemon, how they fail, and how they show what they got.

Law: nothing that came from elsewhere reaches a terminal but through `visible`. Who waits has shown all he has.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NoReturn

import click

from bccnd.cli.direct import until
from bccnd.client.bus import Connection, Event, Gap, Reconnected, Refusal, connect
from bccnd.client.message import Message, to_bytes
from bccnd.core import frames
from bccnd.errors import BusError

#: what a refusal means, and what helps
REFUSALS: Final = {
    "bad_channel": "is no legal channel (1 to 1024 graphic ASCII characters without : and |); only programs of this "
    "host have got it",
    "bad_target": "is no legal target (it begins with ? or /); nobody has got it",
    "too_long": "does not fit in a datagram of 1400 bytes; only programs of this host have got it",
    "send_failed": "could not be broadcast; only programs of this host have got it (see the daemon's log)",
    "not_perl_safe": "holds characters that readers of the Perl module discard (names: perl-safe); only programs of "
    "this host have got it",
    "no_signing_key": "cannot be signed, because this host has no private key (integrity.keys); only programs of this "
    "host have got it",
    "reserved_key": "is reserved for the daemon",
    "not_permitted": "is not permitted to you (see access in the daemon's configuration)",
    "pattern_too_long": "is too long for a pattern (at most 1024 bytes and 64 levels)",
    "too_many_subscriptions": "is one pattern too many, or too large a one (bus.max_subscriptions for each client, "
    "bus.user.subscriptions for all of your user)",
    "frame_too_long": "is too long for the bus",
    "bad_tag": "is no tag: that is one word of at most 32 characters that a name may hold",
    "unknown_control": "is not known there: this bus has no segments (bccn-sbusd), or is older than this tool",
}
#: the same where it names nothing: about everything, or the one who connects
TURNED_AWAY: Final = {
    "not_permitted": "you may not subscribe to everything (see access in the daemon's configuration)",
    "not_admitted": "you may not connect (see mode and group of the socket in the daemon's configuration)",
    "too_many_clients": "the daemon serves as many clients as it may (bus.max_clients)",
    "too_many_clients_of_user": "the daemon serves as many clients of your user as it may (bus.user.clients)",
}


def fail(message: str) -> NoReturn:
    tell(message)
    sys.exit(1)


def tell(message: str) -> None:
    """Say something that is no data, behind all data that came before it."""
    sys.stdout.flush()
    click.echo(f"bccn: {message}", err=True)


# -- the daemon


@contextmanager
def the_bus(path: str, *, reconnect: bool = False) -> Iterator[Connection]:
    """A connection to the daemon; what goes wrong with it ends the command with a message."""
    try:
        bus = connect(path, reconnect=reconnect)
    except BusError as error:
        remedy = "start it (systemctl start bccnd), or name its socket with --socket"
        if isinstance(error.__cause__, PermissionError):
            remedy = "become a member of the socket's group (adduser NAME bccn), and log in anew"
        fail(f"{error.detail}\n  remedy: {remedy}")
    with bus:
        try:
            yield bus
        except BusError as error:
            fail(failure(bus, error))


def failure(bus: Connection, error: BusError) -> str:
    """What has gone wrong, in words: who was turned away at the door has been told why before the connection ended."""
    if error.reason in ("unknown_listing", "unknown_control"):
        return f"the bus at {bus.path} cannot tell: it has no segments (bccn-sbusd), or is older than this tool"
    if error.reason != "connection_lost":
        return error.detail
    try:
        while (event := bus.receive(0)) is not None:
            if isinstance(event, Refusal) and not event.key:
                return explain(event)
    except BusError:
        pass
    return error.detail


def explain(refusal: Refusal) -> str:
    if not refusal.key and refusal.reason in TURNED_AWAY:
        return TURNED_AWAY[refusal.reason]
    return f"'{visible(refusal.key)}' {REFUSALS.get(refusal.reason, f'was refused: {visible(refusal.reason)}')}"


def follow(bus: Connection, deadline: float | None, what: str = "messages") -> Iterator[Message]:
    """The messages that come until ``deadline`` (monotonic); whatever else comes is told, and a refusal is the end."""

    def receive(timeout: float | None) -> Event | None:
        event = bus.receive(0)
        if event is None and timeout != 0:
            sys.stdout.flush()
            event = bus.receive(timeout)
        return event

    for event in until(deadline, receive):
        if isinstance(event, Message):
            yield event
        elif isinstance(event, Gap):
            tell(f"{event.lost} {what} were lost here: this reader is too slow")
        elif isinstance(event, Reconnected):
            tell(absence(event, what))
        elif isinstance(event, Refusal):
            fail(explain(event))


def asked_for(patterns: Sequence[str]) -> Callable[[Message], bool]:
    """Whether a message is one that the patterns ask for, and not only one for every program or for this one."""
    if not all(patterns):  # everything
        return lambda _message: True
    marked = [pattern for pattern in patterns if pattern.startswith("!")]
    if not marked:
        return lambda message: message.form == "plain"
    from bccnd.core.pattern_tree import PatternTree
    from bccnd.core.patterns import DIALECTS

    tree: PatternTree[None] = PatternTree(DIALECTS["path"])
    for pattern in marked:
        tree.add(tree.compile(to_bytes(pattern)), None)
    return lambda message: message.form == "plain" or bool(tree.match(to_bytes(message.chan)))


def absence(event: Reconnected, what: str = "messages") -> str:
    return f"the daemon was away for {event.seconds:.1f} s at most, and is back; {what} of that time are missing here"


def listing(bus: Connection, topic: str) -> Iterator[dict[str, Any]]:
    """The rows of a listing, fetched page by page."""
    asked = topic.encode("ascii")
    while True:
        page = json.loads(bus.ask(frames.STATS, asked))
        yield from page["items"]
        if not page["more"]:
            return
        asked = b"more"


# -- text


def visible(text: str) -> str:
    """Text from elsewhere with every control character shown as an escape: no terminal takes orders from it."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def visible_bytes(data: bytes) -> str:
    return visible(data.decode("utf-8", "backslashreplace"))


def cells(text: str) -> int:
    """How wide visible text is on a terminal."""
    return len(text) if text.isascii() else sum(map(_cells_of, text))


def cut(text: str, width: int) -> str:
    """The beginning of visible text, at most so wide."""
    if cells(text) <= width:
        return text
    if text.isascii():
        return text[: max(0, width)]
    taken = 0
    for number, char in enumerate(text):
        taken += _cells_of(char)
        if taken > width:
            return text[:number]
    return text


def _cells_of(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def payload_fields(payload: bytes) -> dict[str, str]:
    """A payload for JSON: ``payload`` if it is UTF-8 text, else ``payload_base64``."""
    try:
        return {"payload": payload.decode("utf-8")}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(payload).decode("ascii")}


def wants_colour(choice: str) -> bool:
    """What ``--color`` comes to: ``auto`` is a terminal, unless $NO_COLOR is set."""
    if choice != "auto":
        return choice == "always"
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


# -- records


def print_json(rows: Iterable[dict[str, Any]]) -> None:
    for row in rows:
        click.echo(json.dumps(row))


def print_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    # Rich takes longer to load than most commands take to run.
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*(visible(cell) for cell in row))
    width = None if sys.stdout.isatty() else 200
    Console(width=width, markup=False, highlight=False, emoji=False).print(table)


def printed(lines: Iterator[str], count: int | None) -> int:
    """Print what there is, at most ``count`` lines of it; how many there were. Ctrl-C is an end like another."""
    number = 0
    write: Callable[[str], object] = sys.stdout.write
    try:
        for line in lines:
            write(line + "\n")
            number += 1
            if number == count:
                break
    except KeyboardInterrupt:
        pass
    return number
