"""Publishers that speak to this host only: their messages reach every local client as others do, and nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bccnd.core import frames
from tests.support import Hub, Peer, messages, refusals


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with Hub(tmp_path) as one:
        yield one


def local(hub: Hub, *, wanted: bool = True, peer: Peer | None = None) -> Peer:
    """A client that speaks to this host only, or no more."""
    one = peer or hub.connect()
    one.send(frames.request(frames.LOCAL_ON if wanted else frames.LOCAL_OFF))
    hub.settle()
    return one


@pytest.mark.parametrize("key", [b"a/x", b"!", b"!relay01/*", b"no channel"])
def test_what_it_publishes_reaches_local_clients_and_is_not_broadcast(hub: Hub, key: bytes) -> None:
    listener, one = hub.connect(b"a/", b"no channel"), local(hub)
    one.publish(key, b"1", b"2")
    assert messages(listener.all(), key) == [b"1", b"2"]
    assert hub.sent == []
    assert refusals(one.all()) == []


def test_others_are_broadcast_as_before(hub: Hub) -> None:
    local(hub)
    other = hub.connect()
    other.publish(b"a", b"x")
    hub.settle()
    assert len(hub.sent) == 1


def test_it_is_off_at_first_and_the_last_word_counts(hub: Hub) -> None:
    one = hub.connect()
    one.publish(b"a", b"1")
    local(hub, peer=one)
    one.publish(b"a", b"2")
    local(hub, peer=one, wanted=False)
    one.publish(b"a", b"3")
    hub.settle()
    assert [datagram[-1:] for datagram in hub.sent] == [b"1", b"3"]


def test_it_uses_up_no_numbers(hub: Hub) -> None:
    one = hub.connect()
    one.publish(b"a", b"1")
    hub.settle()
    before = hub.egress.next_seq(one.client.identity)
    local(hub, peer=one)
    one.publish(b"a", *[b"2"] * 5)
    hub.settle()
    assert hub.egress.next_seq(one.client.identity) == before


def test_with_meta_its_name_is_told_and_no_number(hub: Hub) -> None:
    listener, one = hub.connect(b"a"), local(hub)
    listener.send(frames.request(frames.META_ON))
    hub.settle()
    one.publish(b"a", b"x")
    (payload,) = messages(listener.all(), b"a")
    src, seq, _, peer, rest = frames.read_meta(payload)
    assert (src, seq, peer, rest) == (one.client.identity, 0, "local", b"x")


def test_what_no_datagram_could_carry_is_nothing_to_complain_about(hub: Hub) -> None:
    listener, one = hub.connect(b"a"), local(hub)
    one.publish(b"a", b"x" * 5000)
    assert messages(listener.all(), b"a") == [b"x" * 5000]
    assert refusals(one.all()) == []


def test_it_may_publish_only_what_it_may(tmp_path: Path) -> None:
    with Hub(tmp_path) as hub:
        one = local(hub)
        one.publish(b"!/bccn/x", b"x")
        assert [reason for reason, _ in refusals(one.all())] == [b"reserved_key"]
