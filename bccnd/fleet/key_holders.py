"""Finds which hosts of the fleet sign with which key, have it, or lack it, of what their reports tell."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from bccnd.fleet.findings import OWN_KEYS


class KeyHolders(NamedTuple):
    """Hosts that sign with a key, hosts that only verify with it, and hosts of the same algorithm that do not have it;
    none of the last two where each host has a key of its own."""

    fingerprint: str
    algorithm: str
    signs: list[str]
    verifies: list[str]
    lacks: list[str]


def key_holders(hosts: Iterable[dict[str, Any]]) -> list[KeyHolders]:
    """Return the holders of each key, the key with which most hosts sign first. ``hosts`` are rows as `bccn fleet
    --json` has them."""
    by_algorithm: dict[str, dict[str, list[str]]] = {}
    for host in sorted(hosts, key=lambda host: str(host["host"])):
        keys = host["keys"]
        if keys["algorithm"]:
            by_algorithm.setdefault(keys["algorithm"], {})[host["host"]] = keys["fingerprints"]
    found = []
    for algorithm, known in by_algorithm.items():
        for key in dict.fromkeys(one for keys in known.values() for one in keys):
            signs = [host for host, keys in known.items() if keys[:1] == [key]]
            verifies = [host for host, keys in known.items() if key in keys[1:]]
            lacks = [] if algorithm == OWN_KEYS else [host for host, keys in known.items() if key not in keys]
            found.append(KeyHolders(key, algorithm, signs, verifies, lacks))
    return sorted(found, key=lambda one: (-len(one.signs), -len(one.verifies), one.fingerprint))
