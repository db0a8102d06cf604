"""When each key was last used, from counts."""

from __future__ import annotations

from bccnd.core.trust.integrity_algorithms import KeyUse
from bccnd.monitoring.key_use_times import KeyUseTimes


def key(name: str, verified: int) -> KeyUse:
    return KeyUse(name, "hmac", True, (), verified)


def test_a_key_was_used_when_its_count_was_first_seen_to_rise() -> None:
    times = KeyUseTimes()
    times.read([key("a", 0), key("b", 5)], 10.0)
    times.read([key("a", 0), key("b", 5)], 20.0)
    assert (times.seconds_since("a", 25.0), times.seconds_since("b", 25.0)) == (None, 15.0)
    times.read([key("a", 1), key("b", 5)], 30.0)
    assert (times.seconds_since("a", 35.0), times.seconds_since("b", 35.0)) == (5.0, 25.0)
    times.read([key("b", 5)], 40.0)
    assert times.seconds_since("a", 45.0) is None
