"""Reading segments: by which time datagrams are judged, and how long they take to the sockets of clients."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import pytest

from bccnd.bus.incoming.publisher import Publisher
from bccnd.bus.incoming.segment_reader import SegmentReader
from bccnd.core.observing.latency_histogram import LatencyHistogram
from bccnd.core.receiving.ingress import Ingress
from bccnd.core.tracking.anonymous_dedup import AnonymousDedup
from bccnd.core.trust.integrity import IntegrityChecker
from bccnd.core.wire import bccn1, frames
from bccnd.core.wire.verdicts import ACCEPTED, DUPLICATE, LOOPED
from bccnd.native.system.sockio import BATCH, Receiver
from bccnd.net.loop import READABLE
from bccnd.net.segment import Segment
from tests.monitoring.pages import open_segment
from tests.support import Hub, datagram

#: full batches, and one that is not
BATCHES = 3


@pytest.fixture
def segment() -> Iterator[Segment]:
    segment = open_segment("lan")
    yield segment
    segment.close()


def reader_of(hub: Hub, segment: Segment, histogram: LatencyHistogram) -> SegmentReader:
    ingress = Ingress(IntegrityChecker(), hub.sources, AnonymousDedup(hub.sources.limits), hub.routes)
    return SegmentReader(segment, ingress, hub.bus.fanout, histogram)


def send(segment: Segment, seqs: Iterable[int]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for seq in seqs:
            sender.sendto(datagram("far/p/1", seq, "a/b", b"x"), ("127.0.0.1", segment.sock.getsockname()[1]))


def forwarded(hub: Hub, segment: Segment, count: int, first: int = 1) -> LatencyHistogram:
    """The histogram after a turn in which so many datagrams waited in the segment."""
    histogram = LatencyHistogram()
    reader = reader_of(hub, segment, histogram)
    send(segment, range(first, first + count))
    assert not reader.read_available()
    return histogram


class AgedReceiver(Receiver):  # type: ignore[misc]
    """Makes the first datagrams of a batch older by ``ages`` (seconds); the others keep the kernel's timestamp."""

    ages: Sequence[int] = ()

    def stamp_ns(self, number: int = 0) -> int:
        stamp: int = super().stamp_ns(number)
        return stamp - self.ages[number] * 1_000_000_000 if stamp and number < len(self.ages) else stamp


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("count", [1, 2, (BATCHES - 1) * BATCH + 1])
def test_the_way_to_the_sockets_of_clients_is_measured(hub: Hub, segment: Segment, count: int, batched: bool) -> None:
    """Clients in batch mode get theirs when the segment is drained: that is one time, of the first message."""
    assert sum(forwarded(hub, segment, BATCH + 1).buckets) == 0  # nothing was delivered
    client = hub.connect(b"a/")
    if batched:
        client.send(frames.request(frames.BATCH_ON))
        hub.settle()
    histogram = forwarded(hub, segment, count, BATCH + 2)
    assert hub.bus.counters.deliveries == count
    assert sum(histogram.buckets) == (1 if batched else -(-count // BATCH))
    assert histogram.sum > 0


@pytest.mark.parametrize("tapped", [False, True])
def test_an_own_broadcast_comes_back_in_its_round_as_looped(hub: Hub, segment: Segment, tapped: bool) -> None:
    """The sum is not computed: here it is one that no key makes."""
    client = hub.connect(b"!/tap/looped" if tapped else b"a/b")
    reader = reader_of(hub, segment, LatencyHistogram())
    publisher = Publisher(hub.loop, hub.routes, hub.bus.fanout, None, [segment.sender], None)
    hub.loop.watch(segment.fileno(), READABLE, reader)
    rounds = hub.loop.rounds
    raw = bccn1.build(b"far/p/1:1:a/b|x", b"hmac=0000000000000000")
    hub.loop.later(0.0, partial(publisher.send, raw))
    hub.turn(1)
    assert hub.loop.rounds == rounds + 1
    assert (segment.counters.sent, segment.counters.verdicts[LOOPED], segment.counters.received) == (1, 1, 1)
    if tapped:
        assert client.receive().endswith(raw)
    else:
        send(segment, [2])
        hub.turn(1)
        assert client.waiting() == [frames.message(b"a/b", b"x")]


@pytest.mark.parametrize("ages", [[5], [5, 4, 3], [5, 5, 1, 1]])
def test_copies_are_judged_by_when_the_originals_arrived(hub: Hub, segment: Segment, ages: list[int]) -> None:
    """The first batch after the pause, too, has a time for each datagram: the last ones have just arrived."""
    segment.receiver = receiver = AgedReceiver(segment.fileno(), 1500, 16)
    reader = reader_of(hub, segment, LatencyHistogram())
    receiver.ages = ages
    originals = range(1, len(ages) + 2)
    send(segment, originals)
    reader.read_available()
    receiver.ages = ()
    send(segment, originals)
    reader.read_available()
    verdicts = segment.counters.verdicts
    assert (verdicts[ACCEPTED], verdicts[DUPLICATE]) == (len(originals), len(originals))
