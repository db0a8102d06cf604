"""Publishers in local mode: their messages use up no numbers. What they reach is in test_model.py."""

from __future__ import annotations

from bccnd.core import frames
from tests.support import Hub


def test_it_is_off_at_first_and_can_be_switched_and_uses_up_no_numbers(hub: Hub) -> None:
    one = hub.connect()
    one.publish(b"a", b"1")
    hub.settle()
    before = hub.egress.next_seq(one.client.identity)
    one.send(frames.request(frames.LOCAL_ON))
    one.publish(b"a", b"2", b"2")
    hub.settle()
    assert hub.egress.next_seq(one.client.identity) == before
    one.send(frames.request(frames.LOCAL_OFF))
    one.publish(b"a", b"3")
    hub.settle()
    assert [datagram[-1:] for datagram in hub.sent] == [b"1", b"3"]
