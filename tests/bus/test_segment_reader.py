"""Reading segments: how long datagrams take to the sockets of clients."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from bccnd.bus.segment_reader import SegmentReader
from bccnd.core import frames
from bccnd.core.anonymous_dedup import AnonymousDedup
from bccnd.core.ingress import Ingress
from bccnd.core.integrity import IntegrityChecker
from bccnd.core.latency_histogram import LatencyHistogram
from bccnd.native.sockio import BATCH
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


def forwarded(hub: Hub, segment: Segment, count: int) -> LatencyHistogram:
    """The histogram after a turn in which so many datagrams waited in the segment."""
    ingress = Ingress(IntegrityChecker(), hub.sources, AnonymousDedup(2.0), hub.routes)
    histogram = LatencyHistogram()
    reader = SegmentReader(segment, ingress, hub.bus.fanout, histogram, hub.bus.transaction)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for seq in range(1, count + 1):
            sender.sendto(datagram("far/p/1", seq, "a/b", b"x"), ("127.0.0.1", segment.sock.getsockname()[1]))
    assert not reader.drain()
    return histogram


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("count", [1, 2, (BATCHES - 1) * BATCH + 1])
def test_the_time_of_a_message_ends_when_it_is_in_the_sockets_of_its_clients(
    hub: Hub, segment: Segment, count: int, batched: bool
) -> None:
    """Clients in batch mode get theirs when the segment is drained: that is one time, of the first message."""
    client = hub.connect(b"a/")
    if batched:
        client.send(frames.request(frames.BATCH_ON))
        hub.settle()
    histogram = forwarded(hub, segment, count)
    assert hub.bus.counters.deliveries == count
    assert sum(histogram.buckets) == (1 if batched else -(-count // BATCH))
    assert histogram.sum > 0


def test_nothing_is_measured_where_nothing_is_delivered(hub: Hub, segment: Segment) -> None:
    hub.connect(b"c/")
    assert sum(forwarded(hub, segment, BATCH + 1).buckets) == 0
