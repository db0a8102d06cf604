"""A simulated client of a host's bus: a plain socket, what it has asked for, and its account."""

from __future__ import annotations

import socket
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from bccnd.core.wire import frames
from bccnd.core.wire.bccn1 import HEARTBEAT
from bccnd.errors import BadFrame
from tests.core.slow_matcher import matches
from tools.simulate import edges
from tools.simulate.host import Host
from tools.simulate.ledger import Ledger
from tools.simulate.violation import Violation

if TYPE_CHECKING:
    from tools.simulate.world import World

_serials = iter(range(1, 1 << 62))


class Publish(NamedTuple):
    """A message that a client has published and whose echo has not come back; ``step`` is when."""

    publisher: Client
    channel: bytes
    token: bytes
    step: int


class Client:
    """A client of ``host`` with a pid of its own, as user ``uid``; ``plain`` clients always read and keep up."""

    def __init__(self, world: World, host: Host, uid: int) -> None:
        self._world = world
        self.host = host
        self.pid = pid = next(world.pids)
        self.uid = uid
        self.name = f"{host.name}/sim{pid % 7}/{pid}"
        self.identity = self.base = self.name.encode()
        self.dialect = "path"
        self.patterns: Counter[bytes] = Counter()
        #: patterns that it has given up, and the event up to which what was sent may still match them
        self.given_up: dict[bytes, float] = {}
        #: whether its patterns match a channel
        self._matched: dict[bytes, bool] = {}
        #: whether it has said that it will send no more
        self.half_closed = False
        #: the event of its last change or of its confirmation, and whether the daemon has confirmed it
        self.changed = world.events
        self.settled = False
        self.reading = True
        self.plain = True
        self.ordered = True
        self.echo = True
        self.meta = False
        self.batched = False
        self.open = True
        #: whether the daemon may disconnect it
        self.may_end = False
        self.published: dict[bytes, list[Publish]] = {}
        self.unsynced: list[Publish] = []
        self._syncs = 0
        self._waiting_sync: dict[bytes, bool] = {}
        #: what it could not send yet: packets, in order
        self._unsent: list[bytes] = []
        self.ledger = Ledger(self.name, self._may_come)
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.setblocking(False)
        self.sock.bind(edges.address_of(pid, uid, next(_serials)))
        self.sock.connect(str(host.path))

    # -- what it asks for

    def send(self, *packets: bytes) -> None:
        """Send packets, or keep them until the daemon has read earlier ones."""
        self._unsent += packets
        self.push()

    def push(self) -> None:
        """Send what could not be sent before."""
        try:
            while self._unsent:
                self.sock.send(self._unsent[0])
                del self._unsent[0]
        except BlockingIOError:
            pass
        except OSError:  # the daemon has closed the connection; reading tells
            self._unsent.clear()

    @property
    def unconfirmed(self) -> int:
        """Messages that the daemon may still have to process."""
        return len(self.unsynced) + sum(map(len, self.published.values()))

    @property
    def backed_up(self) -> bool:
        return bool(self._unsent)

    def sync(self, *, change: bool = False) -> None:
        """Ask for an echo behind all that was sent; after a ``change`` it confirms that."""
        self._syncs += 1
        echo = b"%d" % self._syncs
        if change:
            self.changed, self.settled = self._world.events, False
        self._waiting_sync[echo] = change
        self.published[echo], self.unsynced = self.unsynced, []
        self.send(frames.request(frames.SYNC, echo))

    def subscribe(self, pattern: bytes) -> None:
        self.patterns[pattern] += 1
        self._matched.clear()
        self.send(frames.subscribe(pattern))
        self.sync(change=True)

    def unsubscribe(self, pattern: bytes) -> None:
        self.patterns[pattern] -= 1
        self._matched.clear()
        if not self.patterns[pattern]:
            del self.patterns[pattern]
            self.given_up[pattern] = float("inf")
        self.send(frames.unsubscribe(pattern))
        self.sync(change=True)

    def publish(self, channel: bytes) -> None:
        """Publish the next message."""
        world, sender = self._world, self.name.encode()
        world.serials[sender] += 1
        token = b"%b.%d" % (sender, world.serials[sender])
        world.fly(self.host, token, channel)
        self.unsynced.append(Publish(self, channel, token, world.events))
        self.send(frames.message(channel, token))

    # -- whether a message is for it

    def is_certain(self, step: int) -> bool:
        """Whether the daemon had all that it has asked for when something was sent at a step."""
        return self.settled and self.changed < step

    def wants(self, channel: bytes, step: int) -> str:
        """Whether it must, may or must not get a message sent at a step on a channel."""
        certain = self.is_certain(step)
        if channel.startswith(b"!"):
            addressed = channel == b"!" or self._is_addressed(channel[1:])
            return ("must" if certain else "may") if addressed else "not"
        matched = self._matched.get(channel)
        if matched is None:
            matched = any(matches(self.dialect, pattern, channel) for pattern in self.patterns)
            self._matched[channel] = matched
        if matched:
            return "must" if certain else "may"
        for pattern, until in self.given_up.items():
            if step <= until and matches(self.dialect, pattern, channel):
                return "may"
        return "not"

    def _is_addressed(self, target: bytes) -> bool:
        if target.rpartition(b"/")[2].isdigit():
            return target == self.identity
        return (self.identity + b"/").startswith(target.removesuffix(b"/*") + b"/")

    def _may_come(self, token: bytes) -> bool:
        channel = self._world.in_flight[self.host.name].get(token)
        return channel is not None and self.wants(channel, self.changed) != "not"

    # -- what it gets

    def read(self) -> list[Publish]:
        """Read all that is there; return the publishes that were confirmed."""
        confirmed: list[Publish] = []
        while self.open and self.reading:
            try:
                packet = self.sock.recv(1 << 20)
            except BlockingIOError:
                break
            except ConnectionResetError:
                packet = b""
            if not packet:
                self.open = False
                break
            messages = frames.read_batch(packet) if packet.startswith(b"MSGS ") else [packet]
            for one in messages:
                confirmed += self._take(one)
        return confirmed

    def _take(self, frame: bytes) -> list[Publish]:
        verb, key, payload = frames.read(frame)
        if verb == frames.MSG:
            self._take_message(key, payload)
        elif key == frames.GAP:
            self.ledger.lose(int(payload))
        elif key == frames.SYNC:
            return self._synced(payload)
        return []

    def _synced(self, echo: bytes) -> list[Publish]:
        """Take an answer, which also confirms what came before it: while its queue was full, answers were dropped."""
        if echo not in self._waiting_sync:
            return []
        confirmed: list[Publish] = []
        changed = False
        for before in list(self._waiting_sync):
            changed = self._waiting_sync.pop(before) or changed
            confirmed += self.published.pop(before)
            if before == echo:
                break
        if changed and True not in self._waiting_sync.values():
            self.settled = True
            self.changed = self._world.events
            for pattern, until in list(self.given_up.items()):
                if until == float("inf"):
                    self.given_up[pattern] = self._world.events
        return confirmed

    def _take_message(self, key: bytes, payload: bytes) -> None:
        if key.startswith(b"!/"):
            return
        if key.startswith(HEARTBEAT):
            self.ledger.receive_any(b"")
            return
        if self.meta:
            try:
                payload = frames.read_meta(payload)[-1]
            except BadFrame:
                if self.settled:
                    raise Violation(f"{self.name} got {payload!r} without metadata") from None
        elif not self.settled and b"|" in payload:
            payload = payload.rpartition(b"|")[2]
        # Over the segment a message may come again behind a jump, by the rules of deduplication.
        own = payload.startswith(self.host.name.encode() + b"/")
        try:
            self.ledger.receive(payload, ordered=self.ordered and own)
        except Violation as violation:
            held = sorted(self.patterns)[:8]
            raise Violation(
                f"{violation}; channel {key!r}, patterns {held} in {self.dialect}, {self.identity!r}"
            ) from None

    def balance(self) -> None:
        """Check that this client got what it had to get, or was told of a gap: nothing waits for it any more."""
        self.ledger.balance()

    def shrink(self) -> None:
        """Let the kernel hold next to nothing for this client."""
        client = self.host.client_of(self.pid)
        if client is not None:
            client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4608)

    def half_close(self) -> None:
        """Tell the daemon that this client will send no more."""
        self.may_end = self.half_closed = True
        with suppress(OSError):  # the daemon has closed the connection
            self.sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.open = False
        self.sock.close()
