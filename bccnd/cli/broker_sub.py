"""`bccn broker-sub`: a subscriber of the TCP broker, for people.

Law: it speaks the broker's protocol and nothing else, so that it serves with any broker. What came is printed before
anything is waited for, and nothing of it reaches a terminal raw.
"""

from __future__ import annotations

import base64
import json
import os
import select
import socket
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import click

from bccnd.cli.output import fail, visible_bytes
from bccnd.cli.output import print_notice as tell
from bccnd.cli.publish_lines import LineSplitter as Lines
from bccnd.errors import BusError
from bccnd.gateways.broker_codec import (
    DISCONNECT,
    HELLO,
    MAX_TOPIC,
    MESSAGE,
    SUBSCRIBE,
    TYPE_NAMES,
    UNSUBSCRIBE,
    Delivered,
    hello,
    read_message,
    request,
)

#: seconds to wait for a connection, and for a broker that does not take what is said to it
_PATIENCE: Final = 10.0
#: bytes read at once
_CHUNK: Final = 65_536
_ORDERS: Final = {b"subscribe": SUBSCRIBE, b"unsubscribe": UNSUBSCRIBE}


class Place(NamedTuple):
    """Where a broker is."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def read_place(text: str) -> Place | None:
    """``HOST:PORT`` or ``[ADDRESS]:PORT``; None for anything else."""
    host, _, port = text.rpartition(":")
    inside = host.removeprefix("[").removesuffix("]")
    bracketed = host == f"[{inside}]"
    if not inside or (":" in inside) != bracketed:
        return None
    if not port.isascii() or not port.isdigit() or not 0 < int(port[:6]) <= 65_535:
        return None
    return Place(inside, int(port))


class Bye(Exception):
    """The user wants to leave."""


def read_order(line: bytes) -> bytes | None:
    """What a line of standard input says to the broker; None for an empty line.

    Raises Bye, and ValueError with what is wrong.
    """
    word, _, rest = line.strip().partition(b" ")
    topic = rest.strip()
    if not word:
        return None
    if word == b"exit" and not topic:
        raise Bye
    if word not in _ORDERS or not topic:
        raise ValueError(f"'{visible_bytes(line.strip())}' is no command: subscribe TOPIC, unsubscribe TOPIC, exit")
    return request(_ORDERS[word], checked(topic))


def checked(topic: bytes) -> bytes:
    """A topic that can be asked for. Raises ValueError."""
    if not topic or len(topic) > MAX_TOPIC or b"\0" in topic:
        shown = visible_bytes(topic)
        raise ValueError(f"'{shown}' is no topic: 1 to {MAX_TOPIC} bytes, and this one has {len(topic)}")
    return topic


def as_line(message: Delivered) -> str:
    peer, topic, kind, value = message
    return f"{visible_bytes(peer)} - {visible_bytes(topic)} - {TYPE_NAMES[kind]} - {visible_bytes(value)}"


def as_json(message: Delivered) -> str:
    fields = {
        "peer": message.peer.decode("ascii", "backslashreplace"),
        "topic": message.topic.decode("utf-8", "backslashreplace"),
        "type": TYPE_NAMES[message.kind],
    }
    try:
        fields["value"] = message.value.decode("utf-8")
    except UnicodeDecodeError:
        fields["value_base64"] = base64.b64encode(message.value).decode("ascii")
    return json.dumps(fields)


@click.command("broker-sub")
@click.argument("broker", metavar="HOST:PORT")
@click.argument("topics", nargs=-1)
@click.option("--id", "name", required=True, metavar="ID", help="Who this is: up to 10 bytes, and nobody else's.")
@click.option("--json", "as_object", is_flag=True, help="One JSON object a line.")
@click.option("-n", "--count", type=click.IntRange(min=1), help="End after so many messages.")
@click.option("-t", "--timeout", type=click.FloatRange(min=0), help="End after so many seconds; exit 1 if -n is unmet.")
def broker_sub(
    broker: str, topics: Sequence[str], name: str, as_object: bool, count: int | None, timeout: float | None
) -> None:
    """Print what a broker has for the subscriber ID: on each TOPIC, and on those it had subscribed to before.

    \b
      upb/precis/elevator    this topic
      upb/+/elevator         one level at the place of +
      upb/*                  any number of levels at the place of *

    \b
      bccn broker-sub 127.0.0.1:5401 --id C1 'upb/*'
      bccn broker-sub --json -n 1 -t 10 127.0.0.1:5401 --id C2 door/opened

    Prints IP:PORT - TOPIC - TYPE - VALUE, a message a line, where IP:PORT is the sender and TYPE one of INT,
    SHORT_REAL, FLOAT and STRING. Standard input takes commands: subscribe TOPIC, unsubscribe TOPIC, exit. The broker
    keeps subscriptions: who comes back with the same id has them again, until they are taken back. Any broker of this
    protocol will do, not only that of bccnd.
    """
    place = read_place(broker)
    if place is None:
        raise click.BadParameter(f"{broker!r} is no address: write HOST:PORT, like 127.0.0.1:5401")
    said = os.fsencode(name)
    if not said or len(said) >= HELLO:
        raise click.BadParameter(f"an id has 1 to {HELLO - 1} bytes, and this one {len(said)}", param_hint="'--id'")
    try:
        asked = [request(SUBSCRIBE, checked(os.fsencode(topic))) for topic in topics]
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    deadline = None if timeout is None else time.monotonic() + timeout
    try:
        with _dial(place) as sock:
            sock.sendall(hello(said) + b"".join(asked))
            number = _Reader(sock, place, as_json if as_object else as_line, count).run(deadline)
    except KeyboardInterrupt:
        return
    except OSError as error:
        fail(f"the broker at {place} has gone: {error.strerror or error}")
    sys.exit(1 if count is not None and number < count else 0)


def _dial(place: Place) -> socket.socket:
    try:
        sock = socket.create_connection(place, _PATIENCE)
    except OSError as error:
        why = "it does not answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
        fail(
            f"cannot reach a broker at {place}: {why}\n"
            "  remedy: see whether it runs there (gateways.broker.tcp in the daemon's configuration)"
        )
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


class _Reader:
    """Both sides at once: what the broker sends, and what the user types."""

    def __init__(self, sock: socket.socket, place: Place, show: Callable[[Delivered], str], count: int | None) -> None:
        self._sock = sock
        self._place = place
        self._show = show
        self._count = count
        self._inbox = bytearray()
        self._lines = Lines()
        self._number = 0

    def run(self, deadline: float | None) -> int:
        """Go on until something ends it; how many messages were printed. Raises OSError."""
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        typed = _standard_input()
        if typed is not None:
            poll.register(typed, select.POLLIN)
        while self._number != self._count:
            sys.stdout.flush()
            left = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
            ready = {fd for fd, _ in poll.poll(left)}
            if self._sock.fileno() in ready:
                self._hear()
            if typed in ready and not self._listen(typed):
                poll.unregister(typed)
                typed = None
            if not ready and left == 0:
                break
        sys.stdout.flush()
        return self._number

    def _hear(self) -> None:
        data = self._sock.recv(_CHUNK)
        if not data:
            remedy = "\n  remedy: see whether another one is connected with this id, and what the broker's log says"
            fail(f"the broker at {self._place} has closed the connection{'' if self._number else remedy}")
        self._inbox += data
        while len(self._inbox) >= MESSAGE and self._number != self._count:
            message = read_message(bytes(self._inbox[:MESSAGE]))
            del self._inbox[:MESSAGE]
            if message is None:
                fail(f"what came from {self._place} is no message of a broker\n  remedy: see what listens there")
            sys.stdout.write(self._show(message) + "\n")
            self._number += 1

    def _listen(self, fd: int) -> bool:
        """Take commands; False at the end of them, which ends nothing else."""
        chunk = os.read(fd, _CHUNK)
        try:
            for line in self._lines.feed(chunk):
                try:
                    order = read_order(line)
                except ValueError as error:
                    tell(str(error))
                else:
                    if order is not None:
                        self._sock.sendall(order)
        except BusError as error:
            fail(error.detail)
        except Bye:
            self._sock.sendall(request(DISCONNECT))
            sys.stdout.flush()
            sys.exit(0)
        return bool(chunk)


def _standard_input() -> int | None:
    """None where there is none."""
    try:
        return sys.stdin.fileno()
    except (AttributeError, OSError, ValueError):
        return None
