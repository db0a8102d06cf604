"""One message followed across this host: every copy of it that comes in, who is to have it, and what became of that.

Law: who follows nothing costs nothing: only while somebody does, datagrams take the way through `Followed`, in the same
order and with the same verdicts. A trace has an end, names so many clients, keeps so many events, and is its client's.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from bccnd.core import frames
from bccnd.core.arrival import spans
from bccnd.core.counters import SegmentCounters
from bccnd.core.dedup import Sources
from bccnd.core.follow import Wanted, claims, neighbours, place
from bccnd.core.ingress import Delivery, Ingress
from bccnd.core.pattern_tree import PatternTree
from bccnd.core.patterns import DIALECTS
from bccnd.core.routes import Routes
from bccnd.core.verdicts import NAMES
from bccnd.errors import BadDatagram, BadMessage
from bccnd.net.bus import Publish
from bccnd.net.clients import Client, Clients
from bccnd.net.loop import Loop, Timer

#: traces at a time, of all clients together
MAX_TRACES: Final = 16
#: events that a trace keeps, and receivers that each of them names: 1 MB for a trace at most
MAX_EVENTS: Final = 64
MAX_NAMED: Final = 50
#: bytes of events in one answer, which fits in a packet with room to spare
MAX_ANSWER: Final = 65_536
#: seconds that a trace lasts at most: who needs longer asks again
MAX_SECONDS: Final = 3600.0
#: seconds between two looks at whether what was queued has been taken, and at whose time is over
LOOK: Final = 0.02
#: patterns of a client that are named
MAX_PATTERNS: Final = 8

#: what of a client tells what became of a message: messages lost so far, messages that wait
_Before = dict[int, tuple[Client, int, int]]


class Trace:
    """What one client wants to know, and what was seen of it so far. ``until`` is monotonic, in seconds."""

    def __init__(self, client: Client, wanted: Wanted, until: float) -> None:
        self.client = client
        self.wanted = wanted
        self.until = until
        self.events: deque[dict[str, Any]] = deque()
        self.told = 0
        self.left_out = 0

    def add(self, event: dict[str, Any]) -> None:
        if self.told + len(self.events) >= MAX_EVENTS:
            self.left_out += 1
        else:
            self.events.append(event)


class Follows:
    """All traces. ``explain`` says what would become of a datagram, stage by stage; ``window`` gives how far back a
    tracker remembers. ``use`` has all that comes in go through another ingress, and what is published through another
    function, until it gets None for both."""

    def __init__(
        self,
        loop: Loop,
        ingress: Ingress,
        sources: Sources,
        routes: Routes[int],
        clients: Clients,
        *,
        explain: Callable[[bytes], dict[str, Any]],
        window: Callable[[], int],
        next_seq: Callable[[bytes], int],
        publish: Publish,
        sent: Callable[[], dict[str, int]],
        use: Callable[[Ingress | None, Publish | None], None],
    ) -> None:
        self._loop = loop
        self._sources = sources
        self._routes = routes
        self._clients = clients
        self._explain = explain
        self._window = window
        self._next_seq = next_seq
        self._publish = publish
        self._sent = sent
        self._use = use
        self._followed = Followed(ingress, self)
        self._traces: dict[int, Trace] = {}
        #: what was queued of a message that is followed: its trace, its client, the frame, and since when (monotonic)
        self._queued: list[tuple[Trace, Client, bytes, float]] = []
        self._look_at: Timer | None = None

    # -- what clients ask for

    def ask(self, client: Client, payload: bytes) -> bytes:
        """Follow a message from now on, or tell what was seen of it since the last time. Raises BadMessage: bad_trace,
        too_many_traces, no_trace."""
        if not payload:
            return self._tell(client)
        try:
            said = json.loads(payload)
            seq, seconds = said.get("seq"), min(float(said["seconds"]), MAX_SECONDS)
            if isinstance(seq, bool) or not isinstance(seq, int | None):
                raise ValueError("seq")
            wanted = Wanted(str(said["src"]).encode("ascii"), seq)
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
            raise BadMessage("bad_trace") from None
        if not seconds > 0:
            raise BadMessage("bad_trace")
        if client.number not in self._traces and len(self._traces) >= MAX_TRACES:
            raise BadMessage("too_many_traces")
        trace = self._traces[client.number] = Trace(client, wanted, time.monotonic() + seconds)
        self._begin()
        return self._answer(trace)

    def _tell(self, client: Client) -> bytes:
        trace = self._traces.get(client.number)
        if trace is None:
            raise BadMessage("no_trace")
        return self._answer(trace)

    def _answer(self, trace: Trace) -> bytes:
        wanted = trace.wanted
        events: list[dict[str, Any]] = []
        size = 0
        while trace.events and size < MAX_ANSWER:
            events.append(trace.events.popleft())
            size += len(json.dumps(events[-1]))
        trace.told += len(events)
        answer: dict[str, Any] = {
            "src": wanted.src.decode("ascii"),
            "seq": wanted.seq,
            "events": events,
            "more": bool(trace.events),
            "left_out": trace.left_out,
            "queued": sum(one is trace for one, *_ in self._queued),
        }
        if wanted.prefix is None:
            seq = wanted.seq
            if seq is None:
                source = self._sources.get(wanted.src)
                seq = self._next_seq(wanted.src) if source is None else source.last + 1
            now, window = time.monotonic(), self._window()
            found = place(self._sources, wanted.src, seq, now, window=window)
            beside = neighbours(self._sources, wanted.src, seq, window=window)
            answer["known"] = {"state": found.state, "finding": found.finding}
            answer["neighbours"] = {str(one): state for one, state in beside.items()}
        return json.dumps(answer).encode("ascii")

    def _begin(self) -> None:
        if self._look_at is None:
            self._use(self._followed, self._publish_followed)
            self._look_at = self._loop.later(LOOK, self._look)

    def _look(self) -> None:
        """See who has taken what was queued for him, and whose time is over."""
        now = time.monotonic()
        self._queued = [one for one in self._queued if self._still_waits(*one, now)]
        for number, trace in list(self._traces.items()):
            if not trace.client.open or now >= trace.until:
                del self._traces[number]
        if self._traces:
            self._look_at = self._loop.later(LOOK, self._look)
        else:
            self._look_at = None
            self._queued.clear()
            self._use(None, None)

    @staticmethod
    def _still_waits(trace: Trace, client: Client, frame: bytes, since: float, now: float) -> bool:
        if client.open and any(entry is frame for entry in client.box):
            return True
        event = {"kind": "taken", "at_ns": time.time_ns(), **_who(client), "after": round(now - since, 3)}
        trace.add(event if client.open else {**event, "kind": "left"})
        return False

    # -- what comes in

    def may_be(self, raw: bytes) -> bool:
        return any(trace.wanted.may_be(raw) for trace in self._traces.values())

    def copy(self, counters: SegmentCounters, raw: bytes, peer: str, feed: Callable[[], list[Delivery]]) -> None:
        """A datagram has come that may be one of those that are followed: have it judged, and deliver it."""
        said = claims(raw)
        traces = []
        if said is not None:
            traces = [one for one in self._traces.values() if one.wanted.take(said[0], said[1])]
        if said is None or not traces:
            self._deliver(feed())
            return
        src, seq, chan, payload = said
        before = place(self._sources, src, seq, time.monotonic(), window=self._window())
        stages = self._explain(raw)["stages"]
        verdicts = list(counters.verdicts)
        deliveries = feed()
        grown = [number for number, count in enumerate(counters.verdicts) if count > verdicts[number]]
        had = self._before(fd for receivers, frame in deliveries for fd in receivers if _is_for_clients(frame))
        links = self._before(fd for receivers, frame in deliveries for fd in receivers if _is_for_links(frame))
        reasons = dict(self._clients.counters.dropped)
        self._deliver(deliveries)
        event = {
            "kind": "copy",
            "at_ns": time.time_ns(),
            "segment": counters.name,
            "peer": peer,
            "bytes": len(raw),
            "verdict": NAMES[grown[0]] if grown else "internal_error",
            "before": before.finding,
            "stages": stages,
            **_described(src, seq, chan, payload),
        }
        for trace in traces:
            trace.add({**event, **self._became(trace, chan, had, links, reasons)})

    def _deliver(self, deliveries: list[Delivery]) -> None:
        if deliveries:
            self._clients.deliver(deliveries)
            self._clients.send_batches()

    # -- what is published here

    def _publish_followed(
        self, identity: bytes, key: bytes, payload: bytes, packet: bytes, client: Client | None = None
    ) -> str:
        traces = [one for one in self._traces.values() if one.wanted.speaks(identity)]
        if not traces:
            return self._publish(identity, key, payload, packet, client)
        try:
            route = self._routes.find(key)
            receivers, links = route.plain + route.meta, self._routes.links_here
        except BadDatagram:
            receivers, links = self._routes.local(key), ()
        deaf = client.fd if client is not None and not client.echo else -1
        had, passed = self._before(fd for fd in receivers if fd != deaf), self._before(links)
        reasons, seq, sent = dict(self._clients.counters.dropped), self._next_seq(identity), self._sent()
        refused = self._publish(identity, key, payload, packet, client)
        self._clients.send_batches()
        now = self._next_seq(identity)
        given = now - 1 if now and now != seq else 0
        went = [name for name, count in self._sent().items() if count > sent.get(name, 0)]
        event = {
            "kind": "published",
            "at_ns": time.time_ns(),
            "refused": refused,
            "local": client is not None and client.local,
            "sent_on": went,
            **_described(identity, given, key, payload),
        }
        for trace in traces:
            if trace.wanted.take(identity, given):
                trace.add({**event, **self._became(trace, key, had, passed if went else {}, reasons)})
        return refused

    # -- what became of it

    def _before(self, receivers: Iterator[int] | Sequence[int]) -> _Before:
        by_fd = self._clients.by_fd
        return {fd: (by_fd[fd], by_fd[fd].loss, by_fd[fd].box.messages) for fd in receivers if fd in by_fd}

    def _became(
        self, trace: Trace, chan: bytes, had: _Before, links: _Before, reasons: dict[str, int]
    ) -> dict[str, Any]:
        dropped = self._clients.counters.dropped
        grown = [reason for reason, count in dropped.items() if count > reasons.get(reason, 0)]
        fate = partial(self._fate, trace, grown)
        return {
            "receivers": [
                {**_who(client), "patterns": self._patterns(client, chan), **fate(client, loss, waiting)}
                for client, loss, waiting in list(had.values())[:MAX_NAMED]
            ],
            "more_receivers": max(0, len(had) - MAX_NAMED),
            "links": [{**_who(client), **fate(client, loss, waiting)} for client, loss, waiting in links.values()],
        }

    def _fate(self, trace: Trace, grown: list[str], client: Client, loss: int, waiting: int) -> dict[str, Any]:
        """What became of a message for one client, which had lost and kept waiting so many before."""
        if not client.open:
            return {"fate": "ended"}
        if client.loss > loss:
            return {"fate": "dropped", "reason": " or ".join(one for one in grown if one != "client_gone")}
        if client.box.messages > waiting:
            last = next((entry for entry in reversed(list(client.box)) if isinstance(entry, bytes)), b"")
            self._queued.append((trace, client, last, time.monotonic()))
            return {"fate": "queued", "behind": waiting}
        return {"fate": "left"} if grown == ["client_gone"] else {"fate": "sent"}

    def _patterns(self, client: Client, chan: bytes) -> list[str]:
        """The patterns of a client that the channel matches; none for what is meant for it by name, or for everyone."""
        if not client.open or chan.startswith(b"!"):
            return []
        found = []
        for text in self._routes.patterns(client.fd):
            dialect = DIALECTS["path"] if text.startswith(b"!") else client.dialect
            tree: PatternTree[None] = PatternTree(dialect)
            tree.add(tree.compile(text), None)
            if tree.match(chan):
                found.append(text.decode("utf-8", "backslashreplace")[:128])
        return found[:MAX_PATTERNS]


class Followed(Ingress):
    """The way of datagrams while somebody follows some of them: those go one by one, and everything else as ever. It
    judges nothing itself, and has nothing of its own."""

    def __init__(self, ingress: Ingress, follows: Follows) -> None:
        self._real = ingress
        self._follows = follows

    def feed(
        self, counters: SegmentCounters, datagrams: list[bytes], peers: Sequence[str], now: float, received_ns: int
    ) -> list[Delivery]:
        feed = partial(self._feed_now, counters, now, received_ns)
        return self._feed_in_pieces(counters, datagrams, peers, feed)

    def _feed_now(
        self, counters: SegmentCounters, now: float, received_ns: int, some: list[bytes], peers: Sequence[str]
    ) -> list[Delivery]:
        return self._real.feed(counters, some, peers, now, received_ns)

    def feed_late(
        self,
        counters: SegmentCounters,
        datagrams: list[bytes],
        peers: Sequence[str],
        now: float,
        stamps: Sequence[int],
        wall_ns: int = 0,
    ) -> list[Delivery]:
        deliveries: list[Delivery] = []
        for start, end, after in spans(stamps):
            # Those that came together are judged as of the same time, in whatever pieces.
            feed = partial(self._feed_then, counters, now + after, stamps[start] or stamps[0], wall_ns)
            self._deliver(deliveries)
            deliveries = self._feed_in_pieces(counters, datagrams[start:end], peers[start:end], feed)
        return deliveries

    def _feed_then(
        self,
        counters: SegmentCounters,
        now: float,
        stamp: int,
        wall_ns: int,
        some: list[bytes],
        peers: Sequence[str],
    ) -> list[Delivery]:
        return self._real.feed_late(counters, some, peers, now, [stamp] * len(some), wall_ns)

    def _feed_in_pieces(
        self,
        counters: SegmentCounters,
        datagrams: list[bytes],
        peers: Sequence[str],
        feed: Callable[[list[bytes], Sequence[str]], list[Delivery]],
    ) -> list[Delivery]:
        """What is followed alone, and what stands between it together; what is still to be delivered in the end."""
        start = 0
        for number, raw in enumerate(datagrams):
            if self._follows.may_be(raw):
                if number > start:
                    self._deliver(feed(datagrams[start:number], peers[start:number]))
                start = number + 1
                self._follows.copy(counters, raw, peers[number], partial(feed, [raw], peers[number:start]))
        return feed(datagrams[start:], peers[start:]) if start < len(datagrams) else []

    def feed_link(
        self,
        counters: SegmentCounters,
        way: int,
        datagram: bytes,
        peer: str,
        now: float,
        received_ns: int,
        *,
        late: bool = False,
        copies: int = 0,
    ) -> tuple[list[Delivery], bool]:
        accepted = False

        def feed() -> list[Delivery]:
            nonlocal accepted
            deliveries, accepted = self._real.feed_link(
                counters, way, datagram, peer, now, received_ns, late=late, copies=copies
            )
            return deliveries

        if not self._follows.may_be(datagram):
            return feed(), accepted
        self._follows.copy(counters, datagram, peer, feed)
        return [], accepted

    def _deliver(self, deliveries: list[Delivery]) -> None:
        self._follows._deliver(deliveries)  # noqa: SLF001 - two halves of one thing


def _is_for_links(frame: bytes) -> bool:
    return frame.startswith(b"MSG %b" % frames.LINK)


def _is_for_clients(frame: bytes) -> bool:
    return not frame.startswith((b"MSG %b" % frames.TAP, b"MSG %b" % frames.LINK))


def _who(client: Client) -> dict[str, Any]:
    return {"identity": client.identity.decode("ascii"), "pid": client.peer.pid}


def _described(src: bytes, seq: int, chan: bytes, payload: bytes) -> dict[str, Any]:
    return {
        "src": src.decode("ascii"),
        "seq": seq,
        "chan": chan.decode("utf-8", "backslashreplace"),
        "payload_bytes": len(payload),
    }
