"""A short run of what `make soak` does for half an hour."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.soak.__main__ import soak

pytest.importorskip("pynng")
pytest.importorskip("pyarrow")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_three_rounds_of_everything_at_once_and_every_message_is_accounted_for(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")  # shown if it fails
    faults, run = soak(3, 60, seed, tmp_path)
    assert faults == []
    # It has done what it is there for: a daemon and a recorder were killed, a file was bad, slow clients lost messages.
    for step in ("kill", "kill recorder", "bad reload", "crowd", "bad peers", "stand still", "strangers", "datagrams"):
        assert run.chaos.done[step], step
    assert run.stage.relay.starts == 3
    assert sum(one.told for one in run.witnesses if one.slow) > 0
    assert sum(one.told for one in run.witnesses if not one.slow) == 0
    assert run.subscriber.got > 0
    assert "passed" in (tmp_path / "soak.txt").read_text()
