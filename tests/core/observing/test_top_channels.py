"""The channels that carried most within the last minute."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.observing.top_channels import REMEMBERED, WINDOW, Channel, TopChannels


def test_only_what_was_carried_within_the_window_counts() -> None:
    busy = TopChannels()
    busy.add(0.0, [(b"a", 5, 1), (b"b", 1, 0)])
    busy.add(5.0, [(b"b", 3, 2)])
    assert busy.busiest(9) == [Channel(b"a", 5, 1), Channel(b"b", 4, 2)]
    assert busy.busiest(1) == [Channel(b"a", 5, 1)]
    busy.add(WINDOW, [])
    assert busy.busiest(9) == [Channel(b"b", 3, 2)]
    busy.add(WINDOW + 5.0, [])
    assert busy.busiest(9) == []
    assert len(busy) == 0


def test_many_other_channels_do_not_hide_a_busy_one() -> None:
    busy = TopChannels(remembered=16)
    for look in range(20):
        others = [(b"x/%d/%d" % (look, number), 2, 9) for number in range(1000)]
        busy.add(look * 5.0, [*others, (b"ours", 50, 3)])
        assert len(busy) <= 16
    assert busy.busiest(1) == [Channel(b"ours", 50 * 12, 3)]


LOOKS = st.lists(st.dictionaries(st.sampled_from([b"a", b"b", b"c", b"d", b"e"]), st.integers(1, 9)), max_size=12)


@pytest.mark.parametrize("remembered", [2, REMEMBERED])
@given(looks=LOOKS)
def test_the_count_is_exact_with_enough_room_and_never_too_high(remembered: int, looks: list[dict[bytes, int]]) -> None:
    busy, truth = TopChannels(remembered), Counter[bytes]()
    for number, look in enumerate(looks):
        busy.add(number * 4.0, [(chan, count, 0) for chan, count in look.items()])
        truth.update(look)
        assert len(busy) <= remembered
    found = {one.chan: one.messages for one in busy.busiest(9)}
    assert all(messages <= truth[chan] for chan, messages in found.items())
    if remembered > 5:
        assert found == truth
