"""Draws the configuration of a fleet: rare settings and small limits far more often than operators choose them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Final

KEY: Final = b"0123456789abcdef0123456789abcdef"
#: seconds after which a source is forgotten
EXPIRE: Final = 60.0
#: the rules for copies: channels, copies, and seconds between them
REPEATS: Final = ((b"rep/fast/", 3, 0.002), (b"rep/slow/", 2, 1.0))


def draw_settings(rng: random.Random, folder: Path) -> dict[str, Any]:
    """Draw the settings that all hosts of a fleet share."""
    settings: dict[str, Any] = {
        "dedup": {
            "sanity": rng.choice([16, 64, 1024, 1024]),
            "horizon": 2.0,
            "late": rng.choice(["drop", "deliver"]),
            "expire": EXPIRE,
            "linked": rng.random() < 0.5,
        },
        "bus": {
            "queue": {"messages": rng.choice([16, 128, 1024, 1024])},
            "max_clients": rng.choice([40, 1000]),
            "user": {"rate": rng.choice([0, 50])},
            "patience": 5.0,
        },
        "metrics": {"groups": {"a": "a/>"} if rng.random() < 0.5 else {}},
        "heartbeat": {"interval": rng.choice([0, 0, 5])},
        "reports": {"max_hosts": rng.choice([2, 4, 1000])},
        # by user, as in a host's configuration; root may do anything
        "access": [
            {"user": "nobody", "publish": ["a/", "b/", "d/", "e/", "!", "rep/"], "tag": True},
            {"publish": [""]},
        ],
    }
    if rng.random() < 0.5:
        settings["repeat"] = [
            {"channels": f"{channels.decode()}>", "copies": copies, "spacing": spacing}
            for channels, copies, spacing in REPEATS
        ]
    if rng.random() < 0.5:
        key = folder / "hmac.key"
        key.write_bytes(KEY)
        key.chmod(0o600)
        settings["integrity"] = {"algorithm": "hmac", "keys": [str(key)], "required": True}
    return settings
