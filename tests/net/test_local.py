"""Publishers in local mode: their messages reach every local client and are not broadcast."""

from __future__ import annotations

from bccnd.core import frames
from tests.support import Hub, Peer, messages, refusals


def local(hub: Hub, *, wanted: bool = True, peer: Peer | None = None) -> Peer:
    """A client that publishes to this host only, or no more."""
    one = peer or hub.connect()
    one.send(frames.request(frames.LOCAL_ON if wanted else frames.LOCAL_OFF))
    hub.settle()
    return one


def test_what_it_publishes_reaches_local_clients_and_is_not_broadcast(hub: Hub) -> None:
    listener, one, other = hub.connect(b"a", b"no channel"), local(hub), hub.connect()
    # What no datagram could carry is no fault here.
    for key in (b"a", b"!", b"!relay01/*", b"no channel"):
        one.publish(key, b"1", b"2" * 5000)
        assert messages(listener.all(), key) == [b"1", b"2" * 5000]
    assert hub.sent == []
    assert refusals(one.all()) == []
    one.publish(b"!/bccn/x", b"x")
    assert [reason for reason, _ in refusals(one.all())] == [b"reserved_key"]
    other.publish(b"a", b"x")
    hub.settle()
    assert len(hub.sent) == 1


def test_it_is_off_at_first_and_can_be_switched_and_uses_up_no_numbers(hub: Hub) -> None:
    one = hub.connect()
    one.publish(b"a", b"1")
    hub.settle()
    before = hub.egress.next_seq(one.client.identity)
    local(hub, peer=one)
    one.publish(b"a", b"2", b"2")
    hub.settle()
    assert hub.egress.next_seq(one.client.identity) == before
    local(hub, peer=one, wanted=False)
    one.publish(b"a", b"3")
    hub.settle()
    assert [datagram[-1:] for datagram in hub.sent] == [b"1", b"3"]


def test_with_meta_it_has_its_name_and_no_number(hub: Hub) -> None:
    listener, one = hub.connect(b"a"), local(hub)
    listener.send(frames.request(frames.META_ON))
    hub.settle()
    one.publish(b"a", b"x")
    (payload,) = messages(listener.all(), b"a")
    src, seq, _, peer, rest = frames.read_meta(payload)
    assert (src, seq, peer, rest) == (one.client.identity, 0, "local", b"x")
