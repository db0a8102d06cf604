"""Topics and channels, and the patterns held on the bus for all subscribers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.matching.pattern_tree import PatternTree
from bccnd.core.matching.patterns import DIALECTS
from bccnd.core.wire.bccn1 import check_chan
from bccnd.core.wire.directed_targets import PLAIN, form_of
from bccnd.gateways.broker.codec import MAX_TOPIC
from bccnd.gateways.broker.topics import EVERYTHING, MergedSubscriptions, channel_of, patterns_of, topic_of

topics = st.binary(min_size=1, max_size=MAX_TOPIC).filter(lambda topic: b"\0" not in topic)
channels = st.text(st.sampled_from("!%/*+aA09FXx~"), min_size=1, max_size=40).map(str.encode)


@pytest.mark.parametrize(
    ("topic", "chan"),
    [
        *((b"upb/room/temp", b"upb/room/temp"), (b"a b", b"a%20b"), (b"a:b|c", b"a%3Ab%7Cc"), (b"50%", b"50%25")),
        *((b"!bang", b"%21bang"), (b"not!first", b"not!first"), (b"caf\xc3\xa9/\x7f", b"caf%C3%A9/%7F")),
        (b"a b/+/*", b"a%20b/+/*"),
    ],
)
def test_a_topic_is_written_as_a_channel(topic: bytes, chan: bytes) -> None:
    assert channel_of(topic) == chan
    assert topic_of(chan) == topic


def test_other_channels_stand_for_themselves_or_nothing() -> None:
    for chan in (b"50%", b"a%41", b"a%2fb", b"a%c3", b"x%21", b"%%", b"a%2", b"x" * 50):
        assert topic_of(chan) == chan
    assert topic_of(b"%20" * 50) == b" " * 50
    assert [topic_of(chan) for chan in (b"x" * 51, b"%20" * 51, b"a%00b", b"")] == [None] * 4


@given(topics)
def test_every_topic_comes_back_and_is_a_plain_channel(topic: bytes) -> None:
    chan = channel_of(topic)
    check_chan(chan)
    assert form_of(chan) == PLAIN
    assert chan.count(b"/") == topic.count(b"/")
    assert topic_of(chan) == topic


@given(channels)
def test_at_most_two_channels_have_one_topic(chan: bytes) -> None:
    topic = topic_of(chan)
    assert topic is not None
    assert chan in (topic, channel_of(topic))


@given(st.lists(topics, max_size=8), st.lists(st.sampled_from([b"a", b"b c", b"+", b"*", b"%", b"!"]), min_size=1))
def test_a_pattern_finds_on_the_bus_what_it_finds_in_topics(others: list[bytes], levels: list[bytes]) -> None:
    pattern = b"/".join(levels)[:MAX_TOPIC]
    plain: PatternTree[int] = PatternTree(DIALECTS["broker"])
    written: PatternTree[int] = PatternTree(DIALECTS["broker"])
    plain.add(plain.compile(pattern), 1)
    written.add(written.compile(channel_of(pattern)), 1)
    for topic in [*others, pattern, pattern.replace(b"+", b"b c").replace(b"*", b"a/b c")[:MAX_TOPIC]]:
        assert bool(plain.match(topic)) == bool(written.match(channel_of(topic))), topic


def test_what_is_asked_for_a_pattern() -> None:
    assert patterns_of(b"a/+/c") == (b"a/+/c",)
    assert patterns_of(b"50%") == (b"50%25", b"50%")
    # Never what the bus takes for its own.
    assert patterns_of(b"!/tap/") == (b"%21/tap/",)


@given(
    st.lists(
        st.tuples(st.booleans(), st.sampled_from([b"a", b"b", b"c d", b"*", b"e", b"%", b"%25", b"f/*", b"g", b"h"])),
        max_size=60,
    ),
    st.integers(1, 6),
)
def test_the_bus_always_has_the_patterns_that_are_wanted(steps: list[tuple[bool, bytes]], limit: int) -> None:
    merged = MergedSubscriptions(limit)
    held: set[bytes] = set()
    wanted: list[bytes] = []
    too_many = False
    for adds, topic in steps:
        if adds:
            wanted.append(topic)
        elif topic in wanted:
            wanted.remove(topic)
        else:
            continue
        for subscribe, pattern in merged.change([topic], wanted=adds):
            assert (pattern in held) != subscribe
            held ^= {pattern}
            # No message is missed meanwhile.
            assert EVERYTHING in held or held >= {one for topic in wanted for one in patterns_of(topic)} or subscribe
        asked = {pattern for one in wanted for pattern in patterns_of(one)}
        too_many = len(asked) > (limit // 2 if too_many else limit)
        assert held == ({EVERYTHING} if too_many else asked)


def test_too_many_wildcards_ask_the_bus_for_everything() -> None:
    merged = MergedSubscriptions(wildcards=8)
    assert merged.change([b"*/a", b"*/b", b"c/*"], wanted=True) != [(True, EVERYTHING)]  # six places
    assert (True, EVERYTHING) in merged.change([b"+/+/+"], wanted=True)
    assert merged.change([b"*/a"], wanted=False) == []
    assert (False, EVERYTHING) in merged.change([b"*/b"], wanted=False)
