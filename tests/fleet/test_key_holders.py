"""Which hosts sign with a key, have it, or lack it."""

from __future__ import annotations

from typing import Any

from bccnd.fleet.key_holders import KeyHolders, key_holders


def host(name: str, algorithm: str, *fingerprints: str) -> dict[str, Any]:
    return {"host": name, "keys": {"algorithm": algorithm, "fingerprints": list(fingerprints)}}


def test_the_first_key_of_a_host_signs() -> None:
    hosts = [host("c", "hmac", "old"), host("a", "hmac", "old", "new"), host("b", "hmac", "new", "old"), host("d", "")]
    assert key_holders(hosts) == [
        KeyHolders("old", "hmac", ["a", "c"], ["b"], []),
        KeyHolders("new", "hmac", ["b"], ["a"], ["c"]),
    ]


def test_a_key_that_a_host_has_for_itself_is_lacked_by_nobody() -> None:
    hosts = [host("a", "sig", "x"), host("b", "sig", "y"), host("c", "none"), host("d", "hmac", "z")]
    assert key_holders(hosts) == [
        KeyHolders("x", "sig", ["a"], [], []),
        KeyHolders("y", "sig", ["b"], [], []),
        KeyHolders("z", "hmac", ["d"], [], []),
    ]
