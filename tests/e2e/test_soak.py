"""A short run of what `python -m tests.soak.bus` does for as long as one likes."""

from __future__ import annotations

import random

from tests.soak.bus import soak


def test_random_frames_from_50_clients_are_answered_as_the_model_says_and_leave_nothing() -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")  # shown if it fails
    steps = soak(10.0, 50, seed)
    kinds = {"publish", "subscribe", "unsubscribe", "request", "nonsense", "retag", "come_and_go", "from_the_wire"}
    assert all(steps[kind] for kind in kinds)
    assert steps["deliveries"] > 1000
    assert 1000 < steps["batches"] < steps["messages in batches"] < steps["deliveries"]
