"""The busiest channels: those that carried most within the last minute, whatever else there was."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.busy import WINDOW, Busy, Channel
from bccnd.core.patterns import DIALECTS
from bccnd.core.routes import Routes


def test_what_was_carried_within_the_window_counts_and_older_things_do_not() -> None:
    busy = Busy()
    busy.look(0.0, [(b"a", 5, 1), (b"b", 1, 0)])
    busy.look(5.0, [(b"b", 3, 2)])
    assert busy.busiest(9) == [Channel(b"a", 5, 1), Channel(b"b", 4, 2)]
    assert busy.busiest(1) == [Channel(b"a", 5, 1)]
    busy.look(WINDOW, [])
    assert busy.busiest(9) == [Channel(b"b", 3, 2)]
    busy.look(WINDOW + 5.0, [])
    assert busy.busiest(9) == []
    assert len(busy) == 0


def test_strangers_names_fill_no_memory_and_do_not_hide_what_is_busy() -> None:
    busy = Busy(remembered=16)
    for look in range(20):
        strangers = [(b"x/%d/%d" % (look, number), 2, 0) for number in range(1000)]
        busy.look(look * 5.0, [*strangers, (b"ours", 50, 3)])
        assert len(busy) <= 16
    assert busy.busiest(1) == [Channel(b"ours", 50 * 12, 3)]


LOOKS = st.lists(st.dictionaries(st.sampled_from([b"a", b"b", b"c", b"d", b"e"]), st.integers(1, 9)), max_size=12)


@given(LOOKS)
def test_while_there_is_room_the_count_is_exact(looks: list[dict[bytes, int]]) -> None:
    busy, truth = Busy(), Counter[bytes]()
    for number, look in enumerate(looks):
        busy.look(number * 4.0, [(chan, count, 0) for chan, count in look.items()])
        truth.update(look)
    assert {one.chan: one.messages for one in busy.busiest(9)} == dict(truth)


@given(LOOKS)
def test_where_there_is_none_it_is_never_too_much(looks: list[dict[bytes, int]]) -> None:
    busy, truth = Busy(remembered=2), Counter[bytes]()
    for number, look in enumerate(looks):
        busy.look(number * 4.0, [(chan, count, 0) for chan, count in look.items()])
        truth.update(look)
        assert len(busy) <= 2
    assert all(one.messages <= truth[one.chan] for one in busy.busiest(9))


def test_routes_say_once_what_they_have_carried() -> None:
    routes: Routes[int] = Routes(DIALECTS["path"], cache=4)
    routes.join(1, b"h/p/1")
    routes.subscribe(1, b"a/")
    for _ in range(3):
        routes.find(b"a/b").carried += 1
    routes.find(b"!").carried += 1
    routes.find(b"quiet")
    assert sorted(routes.carried()) == [(b"!", 1, 1), (b"a/b", 3, 1)]
    assert routes.carried() == []
    # What is still in use is carried over when there is room no more.
    routes.find(b"a/b").carried += 1
    for number in range(4):
        routes.find(b"n/%d" % number)
    routes.find(b"a/b").carried += 1
    assert routes.carried() == [(b"a/b", 2, 1)]
