"""Events of a client and its daemon as a line of words, played with the scripted daemon.

    c.sub:a/door/*,b >b=1 >a=2 c.read:1 read:2 said:SUB_a/door/*|SUB_b d.restart sync~connection_lost

``>b=1`` is a packet that the daemon sends, see `packet`. ``c.lost=3`` is a figure. Other words are methods of `Player`
or calls, with arguments behind colons, ``_`` for a blank and ``=`` for NUL: of the subscription of that letter, of the
daemon ``d``, or of the connection. A word that ends in ``~connection_lost`` is refused for that reason.
"""

from __future__ import annotations

import re
from contextlib import nullcontext
from itertools import islice
from typing import Any, Final

import bccnd
from bccnd.core.wire import frames
from tests.client.sessions import Bare, batch, frame, without_syncs
from tests.refusals import refused
from tests.support import PATIENCE, wait

_WORD: Final = re.compile(r"(?:(\w)\.)?(\w+)(?:=(\d+)|:(.*))?")
#: arguments that are no text
VALUES: Final[dict[str, Any]] = {"on": True, "off": False, "-": None, "much": "x" * (4 << 20)}


def raw(text: str) -> bytes:
    """A packet as it is, with ``_`` for a blank and ``=`` for NUL."""
    return text.replace("_", " ").replace("=", "\0").encode()


def packet(text: str) -> bytes:
    """A packet of the daemon: ``a=1`` is a message, ``a=1+2`` are two in one packet, ``gap3`` is a gap, and
    ``?bad_channel=key`` a refusal; what begins with a capital letter is taken as it is."""
    name, _, rest = text.partition("=")
    if name[0].isupper():
        return raw(text)
    if name.startswith("gap"):
        return frames.gap(int(name[3:]))
    if name.startswith("?"):
        return frames.error(name[1:], raw(rest))
    payloads = rest.encode().split(b"+")
    return batch(*payloads) if len(payloads) > 1 else frame(name.encode(), *payloads)


def text_of(event: bccnd.Event | None) -> str:
    """An event as a word says it."""
    match event:
        case bccnd.Message():
            return event.text
        case bccnd.Gap():
            return f"gap{event.lost}"
        case bccnd.Refusal():
            return f"?{event.reason}={event.key}".replace(" ", "_")
    return "none" if event is None else type(event).__name__.lower()


class Player:
    """Plays words on a client of a scripted daemon."""

    def __init__(self, bare: Bare, bus: Any) -> None:
        self.bare = bare
        self.bus = bus
        self.actors: dict[str, Any] = {"": bus, "d": bare}
        wait(lambda: bare.received, "the connection to be accepted")

    def play(self, history: str) -> None:
        for place, word in enumerate(history.split()):
            try:
                self._play(word)
            except BaseException as error:
                error.add_note(f"word {place}: {word}")
                raise

    def _play(self, word: str) -> None:
        if word[0] == ">":
            self.bare.send(packet(word[1:]))
            return
        event, _, reason = word.partition("~")
        found = _WORD.fullmatch(event)
        assert found is not None
        letter, verb, figure, argument = found.groups()
        actor = self.actors[letter or ""] if verb != "sub" else letter
        if figure:
            assert int(getattr(actor, verb)) == int(figure)
            return
        with refused(reason) if reason else nullcontext():
            if hasattr(self, verb):
                getattr(self, verb)(actor, argument or "")
            else:
                arguments = [] if argument is None else raw(argument).decode().split(":")
                getattr(actor, verb)(*(VALUES.get(one, one) for one in arguments))

    def sub(self, letter: str | None, argument: str) -> None:
        """Subscribe to patterns, maybe with another limit behind a colon."""
        patterns, _, limit = argument.partition(":")
        made = self.bus.subscribe(*patterns.split(","), **({"limit": int(limit)} if limit else {}))
        if letter:
            self.actors[letter] = made

    def use(self, subscription: Any, _: str) -> None:
        """Let a subscription take what matches it from now on."""
        subscription.__enter__()

    def drop(self, subscription: Any, _: str) -> None:
        """Drop the last reference to a subscription."""
        self.actors = {letter: one for letter, one in self.actors.items() if one is not subscription}

    def read(self, source: Any, payloads: str) -> None:
        """Iterate over messages with these payloads; without one, to the end, which comes at once."""
        wanted = payloads.split(",") if payloads else []
        assert [message.text for message in islice(iter(source), len(wanted) or None)] == wanted

    def next(self, source: Any, event: str) -> None:
        """Receive an event."""
        assert text_of(source.receive(PATIENCE)) == event

    def sync(self, _: Any, refusals: str) -> None:
        """Sync, which gives these refusals."""
        assert ",".join(map(text_of, self.bus.sync())) == refusals

    def answer(self, _: Any, argument: str) -> None:
        """Let the daemon answer a packet with some packets from now on."""
        asked, _, answers = argument.partition(":")
        self.bare.answers[raw(asked)] = [packet(one) for one in answers.split(",")]

    def notice(self, _: Any, __: str) -> None:
        """Let the client notice that the daemon has gone."""
        while self.bus.connected:
            assert self.bus.receive(0.01) is None

    def heard(self, _: Any, packet_: str) -> None:
        """Wait until the daemon has heard a packet."""
        self.bare.heard(raw(packet_))

    def said(self, _: Any, packets: str) -> None:
        """Assert what a client has said over the latest connection, besides syncs."""
        self.bus.sync()
        found = without_syncs(self.bare.received[-1])
        assert found == [raw(one) for one in packets.split("|")], found
