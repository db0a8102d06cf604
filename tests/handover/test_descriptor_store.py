"""After a clean stop clients notice nothing; after a crash they are still connected, and are told."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.bus.client_handover import describe
from bccnd.bus.clients.access_rules import Rule
from bccnd.core.wire import bccn1, frames
from bccnd.daemon import takeover
from bccnd.daemon.takeover import TrackerWriter
from bccnd.errors import StartError
from bccnd.handover.descriptor_store import CLIENT_HEAD, ClientRecord, DescriptorStore
from tests.core.material import examples
from tests.handover.successors import Site
from tests.limits import descriptors_left, no_file_larger_than
from tests.rules import bus_limits
from tests.support import messages, slow, turn_until


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as one:
        yield one


@pytest.mark.parametrize("end", [Site.restart, Site.crash])
def test_the_next_daemon_knows_what_a_client_asked_for(site: Site, end: Callable[[Site], object]) -> None:
    """What it receives from then on, and what is charged for it: tests/bus/test_model.py, test_modes.py."""
    one = site.connect(b"a/", b"a/", b"!/app/")
    modes = (frames.META_ON, frames.BATCH_ON, frames.LOCAL_ON, b"echo/off", b"blocking/soft/block", b"order/stack")
    one.send(frames.request(frames.TAG, b"door"), *map(frames.request, modes), frames.unsubscribe(b"a/"))
    site.settle()
    before = describe(site.bus, one.client)
    assert len(before[1]) == 1 + len(modes) + 2
    for _ in range(2):
        end(site)
        assert describe(site.bus, one.client) == before
        assert site.kept.dropped == []


def test_what_waits_is_gone_after_a_crash_and_that_is_told(site: Site) -> None:
    reader, publisher = slow(site, b"a"), site.connect()
    publisher.publish(b"a", *(b"%d" % number * 100 for number in range(60)))
    site.settle()
    waiting = reader.client.queue.messages
    assert waiting
    site.crash()
    publisher.publish(b"a", b"after")
    packets = reader.all()
    assert len(messages(packets, b"a")) == 60 - waiting + 1
    assert packets[-2:] == [frames.gap(0), frames.message(b"a", b"after")]


@pytest.mark.parametrize("order", [b"queue", b"stack", b"random"])
def test_an_unknown_loss_is_told_apart_from_a_known_one(tmp_path: Path, order: bytes) -> None:
    with Site(tmp_path, limits=bus_limits(queue={"messages": 5})) as site:
        reader, publisher = slow(site, b"a"), site.connect()
        reader.send(frames.request(b"order/" + order))
        for _ in range(2):  # before the crash, and behind the gap that it leaves, which waits as well
            publisher.publish(b"a", *(b"%d" % number * 100 for number in range(60)))
            site.settle()
            lost = reader.client.lost
            if not site.left.after_crash:
                site.crash()
        site.restart()
        told = [packet for packet in reader.all() if frames.read(packet)[1] == frames.GAP]
        assert lost
        assert sorted(told) == sorted([frames.gap(0), frames.gap(lost)])


@pytest.mark.parametrize("recorded", [True, False])
def test_numbers_go_on_after_a_stop_and_never_back_after_a_crash(
    site: Site, monkeypatch: pytest.MonkeyPatch, recorded: bool
) -> None:
    publisher = site.connect()

    def publish() -> int:
        publisher.publish(b"a", b"x")
        site.settle()
        return bccn1.read(site.sent[-1]).seq

    if recorded:
        first = publish()
        site.restart()
    else:
        with no_file_larger_than(0):
            first = publish()
        assert site.kept.failed_writes == 1
        site.connect()  # the record is written again, with the numbers
    assert publish() == first + 1
    monkeypatch.setattr("bccnd.bus.incoming.publisher.clock.time_ns", lambda: 10**18)
    site.crash()
    assert publish() > first + 1


def test_the_record_of_used_numbers_is_never_lowered(site: Site) -> None:
    site.kept.raise_ceiling(2 * 10**18)
    site.kept.raise_ceiling(10**18)  # for a client that continues far below
    site.crash()
    publisher = site.connect()
    publisher.publish(b"a", b"x")
    site.settle()
    assert bccn1.read(site.sent[-1]).seq >= 2 * 10**18


def stopped_and_crashed(site: Site) -> None:
    site.restart()
    site.crash()


def without_room(site: Site) -> None:
    with descriptors_left(0):
        assert not site.kept.write_image([])
    site.crash()


def damaged(site: Site) -> None:
    site.stop()
    (image,) = site.store.kept["image"]
    os.pwrite(image, b"x", 100)
    site.start()


def started_in_vain(site: Site, error: Exception) -> None:
    """A start that reads what was left, and ends with an error, four times before one succeeds."""
    site.stop()
    for _ in range(4):
        with suppress(type(error)), DescriptorStore(site.store, site.store.passed()) as kept:
            takeover.read_left(kept, monotonic=False)
            raise error
    site.start()


ENDS: dict[str, tuple[Callable[[Site], object], bool]] = {
    "a stop": (Site.restart, False),
    "a crash": (Site.crash, True),
    "a crash after a stop whose image was read": (stopped_and_crashed, True),
    "a stop without room for an image": (without_room, True),
    "a stop whose image was damaged": (damaged, True),
    "a stop before starts that are refused": (
        lambda site: started_in_vain(site, StartError("not_started", "no interface", "wait")),
        False,
    ),
    "a stop before starts that fail by a bug": (lambda site: started_in_vain(site, ValueError()), True),
}


@pytest.mark.parametrize(("end", "is_crash"), ENDS.values(), ids=ENDS)
def test_clients_are_told_of_an_end_without_a_good_image(
    site: Site, end: Callable[[Site], object], is_crash: bool
) -> None:
    assert not site.left.after_crash
    peer = site.connect(b"a")
    end(site)
    assert site.left.after_crash is is_crash
    assert peer.waiting() == [frames.gap(0)] * is_crash


def test_copies_are_sent_after_a_restart_without_another_message(site: Site) -> None:
    now = time.monotonic()
    site.repeater.resume([(now, b"datagram", 0.001, 2, now)])
    site.restart()
    turn_until(site.loop, lambda: len(site.sent) == 2, "the copies")
    assert site.sent == [b"datagram"] * 2


def test_when_the_last_crash_was_is_known_after_a_restart(site: Site) -> None:
    """Links may bring own datagrams of before that crash for a time."""
    site.ingress.own_until_ns = 5
    site.restart()
    assert site.ingress.own_until_ns == 5


def test_rules_of_today_are_enforced_on_clients_of_before(site: Site) -> None:
    peer = site.connect(b"a", b"b")
    peer.send(frames.request(frames.TAG, b"door"))
    site.settle()
    site.rules = (Rule(uid=os.geteuid(), publish=(b"",), subscribe=(b"a",), tag=False),)
    site.restart()
    assert dict(site.routes.patterns(peer.client.fd)) == {b"a": 1}
    assert peer.client.identity == peer.client.base


def test_a_client_that_is_not_stored_is_counted(site: Site) -> None:
    kept = site.connect(b"a")
    site.store.full = True
    lost = site.connect(b"a")
    assert site.kept.not_stored == 1
    site.store.full = False
    site.restart()
    assert site.by_number(lost.client.number) is None
    assert lost.sock.recv(100) == b""
    assert kept.all() == []


def test_a_record_that_cannot_grow_costs_its_client_only(site: Site) -> None:
    peer, other = site.connect(b"a"), site.connect(b"a")
    with no_file_larger_than(16):
        peer.send(frames.subscribe(b"b" * 100))
        site.settle()
    assert (peer.client.record, site.kept.not_stored) == (None, 1)
    site.restart()
    assert site.by_number(other.client.number) is not None


def test_records_that_are_not_understood_cost_their_client_only(site: Site) -> None:
    peer, other = site.connect(b"a"), site.connect(b"b")
    site.stop()
    (record,) = [fd for fd in site.store.kept[f"client-{peer.client.number}"] if not _is_socket(fd)]
    os.ftruncate(record, 3)
    theirs, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, ours:
        site.store.store("client-77", theirs.fileno())
        site.store.store("mystery", theirs.fileno())
        site.start()
    assert site.by_number(other.client.number) is not None
    assert len(site.kept.dropped) == 3
    assert peer.sock.recv(100) == b""


def test_clients_after_a_restart_have_numbers_of_their_own(site: Site) -> None:
    numbers = [site.connect().client.number]
    for end in (site.crash, site.restart):
        end()
        numbers.append(site.connect().client.number)
    assert sorted(set(numbers)) == numbers


def test_trackers_that_refuse_replayed_datagrams_outlive_a_crash(tmp_path: Path) -> None:
    with Site(tmp_path, monotonic=True) as site:
        for number in range(700):
            site.sources.judge(b"a/%d" % number, 1000, 1.0 + number)
        writer = TrackerWriter(site.loop, site.kept, site.sources)
        writer.begin()
        turn_until(site.loop, lambda: "trackers-b" in site.store.kept, "the trackers")
        site.sources.judge(b"a/0", 2000, 900.0)
        writer.begin()  # it is not finished
        site.crash()
        assert len(site.sources) == 700
        known = site.sources.get(b"a/0")
        assert known is not None
        assert known.last == 1000
        assert [source.heard for source in site.sources.all()] == sorted(1.0 + number for number in range(700))


# -- the record of a client


FRAMES = st.lists(st.binary(max_size=300).map(frames.subscribe), max_size=20)


@given(FRAMES, st.integers(0, 400))
@examples(100)
def test_a_record_that_was_cut_has_the_frames_before(lines: list[bytes], cut: int) -> None:
    fd = os.memfd_create("test", os.MFD_CLOEXEC)
    record = ClientRecord(fd)
    try:
        record.replace({"program": "x"}, lines[:3])
        for line in lines[3:]:
            record.append(line)
        size = os.fstat(fd).st_size
        os.ftruncate(fd, max(0, size - cut))
        again = ClientRecord(fd)
        head, found = again.read()
        assert found == lines[: len(found)]
        assert head in ({"program": "x"}, {})
        assert cut or found == lines
        again.append(b"after")
        if head:
            assert ClientRecord(fd).read() == (head, [*found, b"after"])
    finally:
        record.close()


@given(FRAMES, FRAMES, st.floats(0, 1))
@examples(100)
def test_a_record_that_was_half_replaced_is_the_one_before(
    lines: list[bytes], others: list[bytes], share: float
) -> None:
    with closing(ClientRecord(os.memfd_create("test", os.MFD_CLOEXEC))) as record:
        record.replace({"program": "x"}, lines)
        size = os.fstat(record.fd).st_size
        begin = os.pread(record.fd, CLIENT_HEAD.size, 0)
        before = os.pread(record.fd, size, 0)
        record.replace({"program": "y"}, others)
        written = os.pread(record.fd, 1 << 20, size)
        os.pwrite(record.fd, before + written[: round(share * len(written))], 0)
        os.ftruncate(record.fd, size + round(share * len(written)))
        assert os.pread(record.fd, CLIENT_HEAD.size, 0) == begin
        with closing(ClientRecord(os.dup(record.fd))) as again:
            assert again.read() == ({"program": "x"}, lines)
            again.append(b"SUB after")
            assert ClientRecord(record.fd).read() == ({"program": "x"}, [*lines, b"SUB after"])


def test_a_record_that_has_grown_is_written_anew(site: Site) -> None:
    peer = site.connect(b"a")
    pattern = b"p" * 400
    for _ in range(3000):
        peer.send(frames.subscribe(pattern), frames.unsubscribe(pattern))
        site.settle()
    record = peer.client.record
    assert record is not None
    assert os.fstat(record.fd).st_blocks * 512 < 1 << 20
    with closing(ClientRecord(os.dup(record.fd))) as again:
        assert len(again.read()[1]) < 3000
    site.crash()
    assert dict(site.routes.patterns(peer.client.fd)) == {b"a": 1}


def _is_socket(fd: int) -> bool:
    return os.readlink(f"/proc/self/fd/{fd}").startswith("socket:")
