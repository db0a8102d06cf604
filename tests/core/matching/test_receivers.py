"""Receivers, divided by batch mode."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.matching.receivers import NO_RECEIVERS, Group, Receivers
from tests.core.material import examples

SOME = st.lists(st.integers(0, 6), unique=True).map(tuple)


@given(SOME, st.lists(st.sets(st.integers(0, 6)), max_size=6))
@examples(200)
def test_each_receiver_is_in_one_part_in_order(members: tuple[int, ...], modes: list[set[int]]) -> None:
    receivers = Receivers(members)
    assert (receivers.single.all, receivers.batched.all) == (members, ())
    for version, batched in enumerate(modes, 1):
        receivers.divide(batched, version)
        assert receivers.version == version
        assert receivers.all == members
        assert receivers.batched.all == tuple(one for one in members if one in batched)
        assert receivers.single.all == tuple(one for one in members if one not in batched)


def test_parts_that_stay_the_same_keep_their_groups() -> None:
    receivers = Receivers((1, 2, 3))
    single = receivers.single
    single.groups = (Group((1, 2, 3), []),)
    receivers.divide({4}, 1)
    assert receivers.single is single
    receivers.divide({2}, 2)
    assert (receivers.single.groups, receivers.batched.groups) == ((), ())
    parts = receivers.single, receivers.batched
    receivers.divide({2, 5}, 3)
    assert (receivers.single, receivers.batched) == parts


def test_no_receivers_stay_none_in_any_mode() -> None:
    NO_RECEIVERS.divide({1, 2}, 1)
    assert NO_RECEIVERS.all == NO_RECEIVERS.single.all == NO_RECEIVERS.batched.all == ()
