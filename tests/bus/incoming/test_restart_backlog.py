"""After a restart the backlog is paced by clients that kept up before, not by others."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from bccnd.bus.delivery.client_queues import HARD_PRESSED
from bccnd.bus.incoming.restart_backlog import Backlog
from bccnd.core.matching.receivers import Receivers
from tests.support import Hub, turn_until


@dataclass
class Source:
    """What is left to be taken, in batches, and when each was."""

    left: int
    taken: list[float] = field(default_factory=list)

    def read_available(self, rounds: int) -> bool:
        assert rounds == 1
        if not self.left:
            return False
        self.left -= 1
        self.taken.append(time.monotonic())
        return True


def catch_up(hub: Hub, source: Source, patience: float) -> list[Source]:
    done: list[Source] = []
    Backlog(hub.loop, hub.bus.queues, patience, done.append).read([source])  # type: ignore[arg-type, list-item]
    return done


def test_a_backlog_is_read_batch_by_batch_to_its_end(hub: Hub) -> None:
    source = Source(5)
    done = catch_up(hub, source, 60.0)
    assert (len(source.taken), done) == (1, [])
    turn_until(hub.loop, lambda: done, "the end")
    assert len(source.taken) == 5
    assert all(after - before >= 0.001 for before, after in pairwise(source.taken))


def test_reading_ends_with_the_patience(hub: Hub) -> None:
    assert catch_up(hub, Source(5), 0.0)
    began = time.monotonic()
    done = catch_up(hub, Source(10**9), 0.05)
    turn_until(hub.loop, lambda: done, "the end")
    assert time.monotonic() - began >= 0.05


@pytest.mark.parametrize("kept_up", [True, False])
def test_a_backlog_waits_for_a_reader_that_kept_up_only(hub: Hub, kept_up: bool) -> None:
    client, source = hub.connect().client, Source(3)
    backlog = Backlog(hub.loop, hub.bus.queues, 60.0, lambda _intake: None) if kept_up else None
    while client.queue.messages * 2 <= hub.bus.limits.queue.messages:
        hub.bus.fanout.send(Receivers((client.fd,)), b"MSG a\0x")
    if backlog is None:
        catch_up(hub, source, 60.0)
        assert source.left == 2
    else:
        backlog.read([source])  # type: ignore[list-item]
        # A client that reads nothing does not delay the others for long.
        turn_until(hub.loop, lambda: not source.left, "the rest")
        assert source.taken[0] - client.progress >= HARD_PRESSED
