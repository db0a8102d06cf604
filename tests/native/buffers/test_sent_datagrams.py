"""What was sent is recognized when it comes back, once for each copy, and no longer than it is kept."""

from __future__ import annotations

import pytest

from bccnd.native.buffers.sent_datagrams import MOST, PATIENCE, SentDatagrams

#: what was sent, and what comes back: its time, and whether it is recognized
HISTORIES: dict[str, tuple[list[bytes], list[tuple[bytes, float, bool]]]] = {
    "each once": ([b"a", b"b"], [(b"a", 0.0, True), (b"a", 0.0, False), (b"b", 0.0, True)]),
    "each copy": ([b"a", b"b", b"a"], [(b"a", 0.0, True), (b"b", 0.0, True), (b"a", 0.0, True), (b"a", 0.0, False)]),
    "nothing else": ([b"ab"], [(b"a", 0.0, False), (b"abc", 0.0, False), (b"", 0.0, False), (b"ab", 0.0, True)]),
    "what follows a lost one": ([b"a", b"b", b"c"], [(b"b", 0.0, True), (b"a", 0.0, False), (b"c", 0.0, True)]),
    "not what is old": ([b"a"], [(b"a", PATIENCE + 0.5, False), (b"a", 0.0, False)]),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_histories(name: str) -> None:
    sent, returned = HISTORIES[name]
    found = SentDatagrams()
    for datagram in sent:
        found.put(datagram, 0.0)
    assert [found.take(raw, now) for raw, now, _ in returned] == [known for _, _, known in returned]


def test_the_latest_are_kept() -> None:
    found = SentDatagrams()
    datagrams = [b"%d" % number for number in range(3 * MOST)]
    for datagram in datagrams:
        found.put(datagram, 0.0)
    assert len(found) == MOST
    assert not any(found.take(raw, 0.0) for raw in datagrams[: 2 * MOST])
    assert all(found.take(raw, 0.0) for raw in datagrams[2 * MOST :])
    assert len(found) == 0


def test_what_is_lost_delays_recognition_only_for_a_while() -> None:
    found = SentDatagrams()
    for number in range(100):
        found.put(b"lost %d" % number, 0.0)
    late = PATIENCE + 0.5
    for number in range(20):
        found.put(b"%d" % number, late)
        assert found.take(b"%d" % number, late)
