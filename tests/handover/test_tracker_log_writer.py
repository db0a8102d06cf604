"""The log of source trackers is replaced, and outlives a store that refuses it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bccnd.core import tracker_log
from bccnd.core.dedup import TrackerTable
from bccnd.core.tracker_snapshot import start_log
from bccnd.handover.stored_state import Handover
from bccnd.handover.tracker_log_writer import LONGEST_PAUSE, TrackerLogWriter, first_file
from tests.core.tracker_hosts import Host, replay_into
from tests.handover.successors import Store, drop


class Kept:
    """A host whose log is in a store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.host = Host()
        self.handover = Handover(self.store, [], lambda call: call())
        host = self.host
        self.log = start_log(host.sources, host.anonymous, host.liveness, first_file(self.handover), host.now)
        host.tracker_log = host.ingress.tracker_log = self.log
        self.writer = TrackerLogWriter(self.handover, self.log)

    def write(self, seconds: float = 0.0) -> None:
        """Let time pass and write what is due."""
        self.host.now += seconds
        while self.writer.step(self.host.now):
            pass

    def restored(self) -> TrackerTable:
        """Return the trackers that the next daemon would have."""
        handover = Handover(self.store, self.store.passed(), lambda call: call())
        successor = Host(now=self.host.now)
        try:
            assert replay_into(successor, handover.take_tracker_logs()).problems == ()
        finally:
            drop(handover)
        return successor.sources

    def close(self) -> None:
        drop(self.handover)
        self.store.close()


@pytest.fixture
def kept() -> Iterator[Kept]:
    one = Kept(Store())
    yield one
    one.close()


def grow(kept: Kept) -> None:
    """Make the log so large that it is due for a replacement."""
    while not kept.log.due:
        kept.host.heartbeat(b"a/p/1", *range(100))


def test_log_that_is_not_stored_replaces_none(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker_log, "SMALLEST", 1000)
    kept.write()
    kept.host.receive(b"a/p/1", 1)
    grow(kept)
    kept.store.full = True
    kept.write()
    assert kept.writer.failures == 1
    kept.host.receive(b"b/p/2", 1)
    kept.write()
    assert b"a/p/1" in kept.restored()
    assert b"b/p/2" in kept.restored()
    kept.store.full = False
    kept.write(LONGEST_PAUSE)
    assert not kept.log.due
    kept.host.receive(b"c", 1)
    kept.write()
    assert [src in kept.restored() for src in (b"a/p/1", b"b/p/2", b"c")] == [True] * 3
    assert sum(name.startswith("sources-") for name in kept.store.kept) == 1
    assert kept.writer.failures == 1


def test_daemon_whose_log_is_not_stored_at_its_start_stores_it_later() -> None:
    store = Store()
    store.full = True
    kept = Kept(store)
    try:
        kept.write()
        kept.host.receive(b"a/p/1", 1)
        kept.write()
        assert kept.writer.failures == 1
        store.full = False
        kept.write(LONGEST_PAUSE)
        kept.host.receive(b"b/p/2", 1)
        kept.write()
        assert b"a/p/1" in kept.restored()
        assert b"b/p/2" in kept.restored()
    finally:
        kept.close()
