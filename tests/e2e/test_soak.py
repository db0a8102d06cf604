"""Short runs of what `make soak` and `python -m tests.soak.bus` do for as long as one likes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.soak.__main__ import soak
from tests.soak.bus import soak as soak_bus

pytest.importorskip("pynng")
pytest.importorskip("pyarrow")


def test_random_frames_from_50_clients_are_answered_as_the_model_says_and_leave_nothing() -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")  # shown if it fails
    steps = soak_bus(8.0, 50, seed)
    kinds = {"publish", "subscribe", "unsubscribe", "request", "nonsense", "retag", "come_and_go", "from_the_wire"}
    assert all(steps[kind] for kind in kinds)
    assert steps["deliveries"] > 1000
    assert 1000 < steps["batches"] < steps["messages in batches"] < steps["deliveries"]


def test_three_rounds_of_everything_at_once_and_every_message_is_accounted_for(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    faults, run = soak(3, 60, seed, out=tmp_path)
    assert faults == []
    # It has done what it is there for: a daemon and a recorder were killed, a file was bad, the slow were told.
    for step in ("kill", "kill recorder", "bad reload", "crowd", "bad peers", "stand still", "strangers", "datagrams"):
        assert run.chaos.done[step], step
    assert run.stage.relay.starts == 3
    assert sum(one.told for one in run.witnesses if one.slow) > 0
    assert sum(one.told for one in run.witnesses if not one.slow) == 0
    assert run.subscriber.got > 0
    assert "passed: nothing lost untold" in (tmp_path / "soak.txt").read_text()
