"""After a restart the backlog is paced by clients that kept up before, not by others."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import pairwise

from bccnd.bus.delivery.send_queues import HARD_PRESSED
from bccnd.bus.incoming.restart_backlog import Backlog
from bccnd.core.matching.receivers import Receivers
from tests.support import Hub, Peer, turn_until


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


def test_what_has_waited_goes_out_batch_by_batch_until_there_is_no_more(hub: Hub) -> None:
    source = Source(5)
    done = catch_up(hub, source, 60.0)
    assert (len(source.taken), done) == (1, [])
    turn_until(hub.loop, lambda: done, "the end")
    assert len(source.taken) == 5
    assert all(after - before >= 0.001 for before, after in pairwise(source.taken))


def test_it_ends_when_the_patience_is_over_or_was_none(hub: Hub) -> None:
    assert catch_up(hub, Source(5), 0.0)
    endless = Source(10**9)
    began = time.monotonic()
    done = catch_up(hub, endless, 0.05)
    turn_until(hub.loop, lambda: done, "the end")
    assert time.monotonic() - began >= 0.05


def fill(hub: Hub, peer: Peer) -> None:
    """Until more than half of a client's queue is full."""
    client = peer.client
    while client.queue.messages * 2 <= hub.bus.limits.queue.messages:
        hub.bus.fanout.send(Receivers((client.fd,)), b"MSG a\0x")


def test_backlog_waits_for_a_reader_that_kept_up(hub: Hub) -> None:
    peer = hub.connect()
    source = Source(3)
    catch = Backlog(hub.loop, hub.bus.queues, 60.0, lambda _intake: None)
    fill(hub, peer)
    catch.read([source])  # type: ignore[list-item]
    # A client that reads nothing does not delay the others for long.
    turn_until(hub.loop, lambda: not source.left, "the rest")
    assert source.taken[0] - peer.client.progress >= HARD_PRESSED


def test_slow_reader_does_not_delay_the_backlog(hub: Hub) -> None:
    peer = hub.connect()
    fill(hub, peer)
    source = Source(3)
    catch_up(hub, source, 60.0)
    assert source.left == 2
    assert peer.client.queue.messages
