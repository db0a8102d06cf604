"""Events of clients as a line of words, played on a bus.

    r.modes:block r.clog p.send:3 p.waits r.read p.goes lost=0

A client is known by a letter, and connects when it is named first. ``r``, ``s`` and ``t`` do not read by themselves,
and the kernel keeps next to nothing for them; ``w`` has the kernel's usual buffer. These get the messages under the key
``a``; ``e`` is like ``r`` and gets messages under any key. The others, such as ``p`` and ``q``, get none. ``rA`` and
``pB`` are clients of Ann and Bob.

A word is a method of `Actor` with a client before it, or one of `Player`, with an argument behind a colon. Besides:

- ``+601``: the seconds pass, and what is due then is done; ``~100``: nothing is done yet
- ``published=5``, ``r.queued>0``: a figure, see `Player.figures` and `Actor.figures`
- ``restart``: the daemon ends as before a restart, and another one goes on

In the end all clients read all there is. Each message for a client has arrived, in the order in which its publisher
sent it, or is part of a gap in its place; each gap is counted, and nothing waits.
"""

from __future__ import annotations

import gc
import json
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from bccnd.core.matching.receivers import Receivers
from bccnd.core.wire import frames
from tests.bus.leftovers import every_charge_is_what_is_kept, timers
from tests.bus.packets import accounted, unbatched
from tests.handover.successors import Site
from tests.rules import bus_limits
from tests.support import ANN, BOB, TINY, Hub, dropped, gaps, refusals, turn_until

#: bytes of a message: few enough for a socket that keeps little, and too many for many of them
PART: Final = 1000
DAEMON: Final = b"relay01/bccnd/1"
SEGMENT: Final = "segment"
PATTERNS: Final[dict[str, tuple[bytes, ...]]] = {**dict.fromkeys("rstw", (b"a",)), "e": (b"", b"!/")}
_CHECK: Final = re.compile(r"(?:(\w+)\.)?(\w+)([=<>])(\w*)")


def number_of(frame: bytes) -> int:
    found = re.search(rb"(\d{6})x*$", frame)
    assert found is not None, frame
    return int(found[1])


class Actor:
    """A client, and the numbers of the messages that it has sent and that it is to get."""

    def __init__(self, player: Player, name: str) -> None:
        self.name = name
        self.player = player
        self.hub = player.hub
        self.patterns = set(PATTERNS.get(name[0], ()))
        self.peer = self.hub.connect(*self.patterns, who={"A": ANN, "B": BOB}.get(name[1:]))
        if name[0] in "rste":
            self._keep(TINY)
        self.sent: list[int] = []
        self.due: list[int] = []
        self.got: list[bytes] = []
        self.packets = 0
        self.ordered = True
        self.gone = False

    def _keep(self, size: int) -> None:
        self.peer.client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)

    def takes(self, key: bytes) -> bool:
        addressed = key.startswith(b"!") and not key.startswith(b"!/")
        return self.peer.client.open and not self.gone and (addressed or bool({b"", key} & self.patterns))

    @property
    def numbers(self) -> list[int]:
        """The numbers of the messages that it has got."""
        return [number_of(frame) for frame in self.got if frame.startswith(b"MSG ")]

    def figures(self) -> dict[str, int | str]:
        """Its figures; ``sources`` are the publishers of all that it got."""
        client, sources = self.peer.client, self.player.sources
        return {
            "queued": client.queue.messages,
            "bytes": client.queue.bytes,
            "charged": client.account.queue_bytes,
            "lost": client.lost,
            "packets": self.packets,
            "patterns": client.subscriptions,
            "sources": "".join(sources[number] for number in self.numbers if sources[number] != SEGMENT),
        }

    def here(self, _: str) -> None:
        """It connects."""

    def send(self, argument: str) -> None:
        """Publish messages: their number, and maybe their bytes and their key, with ``_`` for a blank."""
        for key, payload in self.player.messages(argument, self.name, self.player.actors.values()):
            self.sent.append(len(self.player.sources) - 1)
            self.peer.publish(key, payload)

    def ask(self, argument: str) -> None:
        """Send so many requests, and maybe their key; without one they bring no answer."""
        count, _, key = argument.partition(":")
        self.peer.send(*[frames.request(key.encode() or frames.ECHO + b"on")] * int(count))

    def clog(self, count: str) -> None:
        """Let the segment bring messages for it alone, until so many wait (1)."""
        for _ in range(1000):
            if self.peer.client.queue.messages < int(count or 1):
                self.player.bring("1", [self])
        assert self.peer.client.queue.messages >= int(count or 1)

    def read(self, count: str) -> None:
        """Read all that there is for it, or so many packets."""
        for _ in range(int(count or 0)):
            self.got += unbatched([self.peer.receive()])

        def done() -> bool:
            self.hub.settle()
            packets = self.peer.waiting()
            self.packets += len(packets)
            self.got += unbatched(packets)
            return not packets and not self.peer.client.queue

        if not count:
            turn_until(self.hub.loop, done, "all that there is for a client")

    def modes(self, modes: str) -> None:
        """Choose a soft and a hard mode and an order, each of which may be left out."""
        for key, value in zip((frames.SOFT, frames.HARD, frames.ORDER), modes.split("/"), strict=False):
            if value:
                self.peer.send(frames.request(key + value.encode()))
        self.ordered = self.ordered and not modes.endswith(("stack", "random"))

    def meta(self, _: str) -> None:
        """Have what is known of the sender put before each message."""
        self.peer.send(frames.request(frames.META_ON))

    def batch(self, _: str) -> None:
        self.peer.send(frames.request(frames.BATCH_ON))

    def single(self, _: str) -> None:
        self.peer.send(frames.request(frames.BATCH_OFF))

    def subscribe(self, pattern: str) -> None:
        self.peer.send(frames.subscribe(pattern.encode()))
        self.patterns.add(pattern.encode())

    def unsubscribe(self, pattern: str) -> None:
        self.peer.send(frames.unsubscribe(pattern.encode()))
        self.patterns.discard(pattern.encode())

    def widen(self, _: str) -> None:
        """Let the kernel keep more for it."""
        self._keep(1 << 20)

    def shut(self, _: str) -> None:
        """Shut its side down."""
        self.peer.sock.shutdown(socket.SHUT_WR)

    def close(self, _: str) -> None:
        self.gone = True
        self.peer.close()

    def end(self, _: str) -> None:
        """Have the bus end it: what it has sent and was not published is gone."""
        self.gone = True
        self.player.withdraw(self.sent[self.peer.client.published :])
        self.hub.bus.registry.end(self.peer.client)

    def ended(self, _: str) -> None:
        """Assert that the bus has ended it."""
        assert not self.peer.client.open
        self.gone = True
        self.got += unbatched(self.peer.waiting())
        assert set(self.numbers) <= set(self.due)

    def waits(self, _: str) -> None:
        """Assert that not all that it has sent was published."""
        assert self.peer.client.published < len(self.sent)

    def goes(self, _: str) -> None:
        """Assert that all that it has sent was published."""
        assert self.peer.client.published == len(self.sent)

    def check(self) -> None:
        """All that was due has arrived in its order, or is part of a gap in its place."""
        numbers, due = self.numbers, set(self.due)
        assert accounted(self.got) == len(self.due)
        assert gaps(self.got) == self.peer.client.lost
        assert len(set(numbers)) == len(numbers)
        assert set(numbers) <= due
        assert {reason for reason, _ in refusals(self.got)} <= {b"too_long", b"bad_channel"}
        sources = {self.player.sources[number] for number in due}
        for source in sources if self.ordered else ():
            mine = [number for number in numbers if self.player.sources[number] == source]
            assert mine == sorted(mine)
        place = 0
        for frame in self.got if self.ordered and len(sources) == 1 else ():
            assert not frame.startswith(b"MSG ") or number_of(frame) == self.due[place]
            place += accounted([frame])


class Player:
    """Plays words on a hub; ``settings`` are those of its `bus_limits`."""

    def __init__(self, hub: Hub, settings: dict[str, Any]) -> None:
        self.hub = hub
        self.settings = settings
        self.actors: dict[str, Actor] = {}
        #: the publisher of each message, by its number
        self.sources: list[str] = []
        #: counted by daemons before this one
        self.before = {"published": 0, "deliveries": 0, "dropped": 0}
        self.timers_before = 0

    def play(self, history: str) -> None:
        for place, word in enumerate(history.split()):
            try:
                self._play(word)
                self.hub.settle()
                every_charge_is_what_is_kept(self.hub)
            except AssertionError as error:
                raise AssertionError(f"word {place}, {word}: {error}") from error
        self._end()

    def _play(self, word: str) -> None:
        if check := _CHECK.fullmatch(word):
            name, figure, sign, value = check.groups()
            found = (self.actor(name) if name else self).figures()[figure]
            compare: dict[str, Callable[[], bool]] = {
                "=": lambda: str(found) == value,
                "<": lambda: int(found) < int(value),
                ">": lambda: int(found) > int(value),
            }
            assert compare[sign](), f"it is {found}"
        elif word[0] in "+~":
            self._pass_time(float(word[1:]))
            if word[0] == "+":
                self._reload()
        else:
            event, _, argument = word.partition(":")
            subject, _, verb = event.rpartition(".")
            actor = self.actor(subject) if subject else None
            if actor is None or actor.peer.client.open or verb in ("ended", "waits", "goes"):
                getattr(actor or self, verb)(argument)

    def actor(self, name: str) -> Actor:
        if name not in self.actors:
            self.actors[name] = Actor(self, name)
        return self.actors[name]

    def figures(self) -> dict[str, int | str]:
        counters, before = self.hub.bus.counters, self.before
        return {
            "published": before["published"] + counters.published,
            "deliveries": before["deliveries"] + counters.deliveries,
            "dropped": before["dropped"] + sum(dropped(self.hub).values()),
            "lost": sum(one.peer.client.lost for one in self.actors.values()),
            "slowed": counters.held["slow_reader"],
            "limited": counters.held["rate"],
            "ended": sum(counters.ended.all().values()),
            "clients": len(self.hub.bus.clients),
            "broadcast": len(self.hub.sent),
        }

    def messages(self, argument: str, source: str, actors: Iterable[Actor]) -> Iterator[tuple[bytes, bytes]]:
        """New messages with their keys, for those of these that get it."""
        count, size, key = (*argument.split(":"), "", "")[:3]
        name = key.replace("_", " ").encode() or b"a"
        for _ in range(int(count)):
            number = len(self.sources)
            self.sources.append(source)
            for actor in actors:
                if actor.takes(name):
                    actor.due.append(number)
            yield name, b"%06d" % number + b"x" * int(size or PART)

    def withdraw(self, numbers: list[int]) -> None:
        """These messages are not published any more."""
        for actor in self.actors.values():
            actor.due = [number for number in actor.due if number not in numbers]
            actor.sent = [number for number in actor.sent if number not in numbers]

    def segment(self, argument: str) -> None:
        """Let the segment bring messages for all; those behind a plus come at once with those before it."""
        self.bring(argument, self.actors.values())

    def bring(self, argument: str, actors: Iterable[Actor]) -> None:
        """Let the segment bring messages for these, all at once."""
        brought = [one for part in argument.split("+") for one in self.messages(part, SEGMENT, actors)]
        receivers = Receivers(tuple([one.peer.client.fd for one in actors if one.takes(brought[0][0])]))
        self.hub.deliver(*((receivers, frames.message(key, payload)) for key, payload in brought))
        self.hub.turn(1)

    def daemon(self, argument: str) -> None:
        """Let the daemon itself publish messages."""
        self.hub.builder.open(DAEMON)
        for key, payload in self.messages(argument, "daemon", self.actors.values()):
            self.hub.bus.publish(DAEMON, key, payload)

    def limit(self, argument: str) -> None:
        """Reload with another limit: its key in the section of the bus, and its value."""
        key, _, value = argument.partition(":")
        section, _, name = key.rpartition(".")
        changed = {**(self.settings.get(section, {}) if section else self.settings), name: json.loads(value)}
        self.settings = {**self.settings, section: changed} if section else changed
        self._reload()

    def timers(self, most: str) -> None:
        """Remember how many timers there are, or assert that at most so many more wait now."""
        gc.collect()
        waiting = timers()
        if most:
            assert waiting - self.timers_before <= int(most)
        else:
            self.timers_before = waiting

    def finish(self, _: str) -> None:
        """Let the bus end as it does before a restart."""
        self.hub.bus.acceptor.stop()
        self.hub.bus.finish(time.monotonic() + 60)

    def restart(self, _: str) -> None:
        """Let another daemon go on."""
        assert isinstance(self.hub, Site)
        self.hub.stop()
        self.before = {name: int(self.figures()[name]) for name in self.before}
        self.hub.start()

    def _pass_time(self, seconds: float) -> None:
        """Set back the times that the bus has stored, as if these seconds had passed."""
        for client in self.hub.bus.clients.values():
            client.progress -= seconds
        for account in self.hub.bus.quota:
            account.stamp -= seconds

    def _reload(self) -> None:
        """Let the bus look again at all that waits."""
        self.hub.reload(bus_limits(**self.settings))
        self.hub.turn()

    def _end(self) -> None:
        self.limit("user.rate:0")
        present = [actor for actor in self.actors.values() if actor.peer.client.open and not actor.gone]
        sent = sum(len(actor.sent) for actor in self.actors.values())

        def done() -> bool:
            published = self.figures()["published"]
            for actor in present:
                actor.read("")
            return published == sent and not self.hub.bus.queue_bytes

        turn_until(self.hub.loop, done, "everything to be published and read")
        for actor in present:
            actor.check()
        if len(present) == len(self.actors):
            figures = self.figures()
            assert figures["dropped"] == figures["lost"]
            assert figures["deliveries"] == sum(len(actor.numbers) for actor in present)


def play(folder: Path, history: str, settings: dict[str, Any]) -> None:
    """Play a history on a bus with these settings, and one more address for clients of other users.

    In one that has ``finish`` nothing is kept for a next daemon.
    """
    limits = bus_limits(**settings)
    with Hub(folder, limits=limits) if "finish" in history else Site(folder, limits=limits, others=["path"]) as hub:
        Player(hub, settings).play(history)
