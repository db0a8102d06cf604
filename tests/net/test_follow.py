"""Following a message changes nothing for anybody: same verdicts, same frames in the same order; and it has an end."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd.core import frames
from bccnd.core.counters import SegmentCounters
from bccnd.core.ingress import Ingress
from bccnd.core.integrity import Door
from bccnd.core.nameless import Nameless
from bccnd.errors import BadMessage
from bccnd.net import follow
from bccnd.net.bus import Publish
from bccnd.net.follow import Follows
from tests.core.world import datagram
from tests.net.packets import unbatched
from tests.support import Hub, Peer, examples, slow, turn_until

SRC = b"a/p/1"
PEER = "10.0.0.9:5400"
NS = 1_700_000_000_000_000_000


class Host:
    """A bus with a way in, and traces of what comes. What comes by a link is passed on to who has asked for it."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.usual = Ingress(Door(), hub.sources, Nameless(2.0), hub.routes)
        self.way = self.usual
        self.counters = SegmentCounters("lan")
        self.follows = Follows(
            hub.loop,
            self.usual,
            hub.sources,
            hub.routes,
            hub.bus.fanout,
            explain=lambda _: {"stages": []},
            window=lambda: 1024,
            next_seq=hub.egress.next_seq,
            publish=hub.bus.publish,
            sent=lambda: {"lan": len(hub.sent)},
            use=self._use,
        )

    def _use(self, ingress: Ingress | None, publish: Publish | None) -> None:
        self.way = ingress or self.usual
        self.hub.bus.publish_through(publish)

    def ask(self, peer: Peer, **request: Any) -> dict[str, Any]:
        return dict(json.loads(self.follows.ask(peer.client, json.dumps(request).encode())))

    def told(self, peer: Peer) -> list[dict[str, Any]]:
        return list(json.loads(self.follows.ask(peer.client, b""))["events"])

    def next(self, peer: Peer) -> list[dict[str, Any]]:
        """Turn until there are events."""
        events: list[dict[str, Any]] = []

        def come() -> bool:
            events.extend(self.told(peer))
            return bool(events)

        turn_until(self.hub.loop, come, "an event")
        return events

    def come(self, *datagrams: bytes, now: float = 1.0) -> None:
        peers = [PEER] * len(datagrams)
        self.hub.bus.fanout.deliver(self.way.feed(self.counters, list(datagrams), peers, now, NS))
        self.hub.bus.fanout.send_batches()

    def come_late(self, *datagrams: bytes, stamps: list[int], now: float = 1.0) -> None:
        peers = [PEER] * len(datagrams)
        found = self.way.feed_late(self.counters, list(datagrams), peers, now, stamps, NS)
        self.hub.bus.fanout.deliver(found)

    def come_by_link(self, raw: bytes) -> bool:
        deliveries, accepted = self.way.feed_link(self.counters, 1, raw, PEER, 1.0, NS, copies=1)
        self.hub.bus.fanout.deliver(deliveries)
        return accepted


@pytest.fixture
def host(hub: Hub) -> Host:
    return Host(hub)


traffic = st.lists(
    st.tuples(
        st.sampled_from([SRC, b"a/p/2", b"?"]), st.integers(1, 12), st.sampled_from([b"c/1", b"c/2", b"!", b"\xff"])
    ),
    max_size=24,
)


@settings(max_examples=examples(30))
@given(traffic, st.sampled_from(["batch", "late", "link"]))
def test_who_follows_changes_nothing_for_anybody(sent: list[tuple[bytes, int, bytes]], how: str) -> None:
    seen = []
    for followed in (False, True):
        with TemporaryDirectory() as folder, Hub(Path(folder)) as hub:
            host = Host(hub)
            watchers = [hub.connect(b"c/"), hub.connect(b"c/1"), hub.connect(frames.TAP), hub.connect(frames.LINK)]
            watchers[0].send(frames.control(frames.META_ON, b""))
            watchers[1].send(frames.control(frames.BATCH_ON, b""))
            hub.settle()
            tracer = hub.connect()
            if followed:
                host.ask(tracer, src="a/*", seconds=60)
            datagrams = [datagram(src, seq, chan, b"%d" % number) for number, (src, seq, chan) in enumerate(sent)]
            if how == "batch":
                host.come(*datagrams)
            elif how == "late" and datagrams:
                host.come_late(*datagrams, stamps=[NS + number * 200_000_000 for number in range(len(datagrams))])
            else:
                for raw in datagrams:
                    host.come_by_link(raw)
            # How many share a packet may differ, what they hold must not.
            got = [unbatched(watcher.all()) for watcher in watchers]
            seen.append((got, host.counters.verdicts, host.counters.received))
    assert seen[0] == seen[1]


def test_each_copy_is_told_with_what_became_of_it(host: Host) -> None:
    hub = host.hub
    quick, stuck, tracer = hub.connect(b"c/"), slow(hub, b"c/1", b"c/*"), hub.connect()
    host.come(*(datagram(SRC, seq, b"c/1", b"f" * 1000) for seq in range(12)))
    known = host.ask(tracer, src="a/p/1", seq=12, seconds=60)
    assert (known["known"]["state"], known["events"]) == ("ahead", [])
    waiting = stuck.client.box.messages
    assert waiting > 0
    host.come(datagram(b"a/p/2", 1, b"c/1"), *(datagram(SRC, seq, b"c/1") for seq in (12, 13, 12)))
    first, second = host.told(tracer)
    assert [one["verdict"] for one in (first, second)] == ["accepted", "duplicate"]
    fates = {one["patterns"][0]: one for one in first["receivers"]}
    assert fates["c/"]["fate"] == "sent"
    assert (fates["c/1"]["fate"], fates["c/1"]["behind"]) == ("queued", waiting + 1)
    assert fates["c/1"]["patterns"] == ["c/1", "c/*"]
    assert second["receivers"] == []
    assert len(quick.all()) == 15
    stuck.all()
    assert [(one["kind"], one["identity"]) for one in host.next(tracer)] == [("taken", stuck.client.identity.decode())]


def test_what_is_published_here_is_told_with_its_seq_and_who_has_it(host: Host) -> None:
    hub = host.hub
    speaker, listener, tracer = hub.connect(b"c/1"), hub.connect(b"c/1"), hub.connect()
    speaker.send(frames.control(frames.TAG, b"speaker"), frames.control(frames.ECHO + b"off", b""))
    hub.settle()
    me = speaker.client.identity.decode()
    host.ask(tracer, src=me, seconds=60)
    speaker.publish(b"c/1", b"one", b"two")
    hub.settle()
    (told,) = host.told(tracer)
    assert (told["kind"], told["sent_on"], told["refused"]) == ("published", ["lan"], "")
    assert str(told["seq"]).encode() in hub.sent[0]
    (receiver,) = told["receivers"]  # and not who speaks
    assert receiver["identity"] == listener.client.identity.decode()
    # And it comes back.
    host.come(*hub.sent)
    (back,) = host.told(tracer)
    assert (back["verdict"], back["seq"]) == ("looped", told["seq"])
    assert len(listener.all()) == 2


def test_what_goes_on_to_other_segments_and_what_comes_from_there_is_told(host: Host) -> None:
    hub = host.hub
    gateway, tracer = hub.connect(frames.LINK, frames.LINK_HERE), hub.connect()
    host.ask(tracer, src="a/*", seconds=60)
    host.come(datagram(SRC, 1, b"c/1"))
    (told,) = host.told(tracer)
    assert [(one["identity"], one["fate"]) for one in told["links"]] == [(gateway.client.identity.decode(), "sent")]
    assert told["receivers"] == []
    # The same one, come by another way.
    assert not host.come_by_link(datagram(SRC, 1, b"c/1"))
    (copy,) = host.told(tracer)
    assert (copy["verdict"], copy["links"], copy["receivers"]) == ("duplicate", [], [])
    assert len(gateway.all()) == 1


def test_one_who_has_asked_to_be_ended_and_one_who_has_left_with_it_are_told(host: Host) -> None:
    hub = host.hub
    strict, stuck, tracer = slow(hub, b"c/1"), slow(hub, b"c/2"), hub.connect()
    strict.send(frames.control(frames.SOFT + b"error", b""))
    hub.settle()
    host.come(*(datagram(b"a/p/2", seq, b"c/2", b"f" * 1000) for seq in range(30)))
    assert stuck.client.box
    sender = iter(range(1, 1000))
    host.ask(tracer, src="a/p/1", seconds=60)
    host.come(datagram(SRC, next(sender), b"c/2"))
    (told,) = host.told(tracer)
    assert told["receivers"][0]["fate"] == "queued"
    stuck.close()
    assert host.next(tracer)[0]["kind"] == "left"
    # Until its socket is full it gets what there is, and then its connection is over.
    fates = set()
    while strict.client.open:
        host.ask(tracer, src="a/p/1", seq=(seq := next(sender)), seconds=60)
        host.come(datagram(SRC, seq, b"c/1", b"f" * 1000))
        fates.add(host.told(tracer)[0]["receivers"][0]["fate"])
    assert fates == {"sent", "ended"}


def test_a_trace_ends_with_its_time_or_its_client_and_then_nothing_is_left_of_it(host: Host) -> None:
    hub = host.hub
    patient, gone = hub.connect(), hub.connect()
    host.ask(patient, src="a/p/1", seq=1, seconds=0.05)
    host.ask(gone, src="a/p/1", seq=1, seconds=60)
    assert host.way is not host.usual
    gone.close()
    turn_until(hub.loop, lambda: host.way is host.usual, "the end of all traces")
    with pytest.raises(BadMessage, match="no_trace"):
        host.told(patient)


def test_traces_and_their_events_are_bounded(host: Host) -> None:
    hub = host.hub
    first, *others = [hub.connect() for _ in range(follow.MAX_TRACES + 1)]
    for one in (first, *others[:-1]):
        host.ask(one, src="a/p/1", seq=1, seconds=60)
    with pytest.raises(BadMessage, match="too_many_traces"):
        host.ask(others[-1], src="a/p/1", seq=1, seconds=60)
    host.ask(first, src="a/p/1", seq=1, seconds=60)  # in place of the one it has
    host.come(*[datagram(SRC, 1, b"c/1")] * (follow.MAX_EVENTS + 5))
    events: list[dict[str, Any]] = []
    more = True
    while more:
        answer = json.loads(host.follows.ask(first.client, b""))
        events, more = events + answer["events"], answer["more"]
    assert (len(events), answer["left_out"]) == (follow.MAX_EVENTS, 5)


@pytest.mark.parametrize(
    "request_",
    [
        *(b"{", b"[]", b"{}", b'{"src":"a"}', b'{"src":"?","seconds":1}', b'{"src":"a","seconds":0}'),
        *(b'{"src":"a","seconds":"x"}', b'{"src":"a","seq":true,"seconds":1}', b'{"src":"a","seq":-1,"seconds":1}'),
        *(b'{"src":"\xc3\xa4","seconds":1}', b'{"src":"a","seconds":1%b}' % (b"0" * 400)),
    ],
)
def test_what_makes_no_sense_is_refused(host: Host, request_: bytes) -> None:
    with pytest.raises(BadMessage, match="bad_trace"):
        host.follows.ask(host.hub.connect().client, request_)
    assert host.way is host.usual
