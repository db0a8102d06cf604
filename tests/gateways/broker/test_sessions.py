"""The ids that the broker knows, against a model that keeps everything in a list, and their database."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bccnd import boot_clock
from bccnd.gateways.broker import session_store
from bccnd.gateways.broker.session_store import SessionStore, default_path
from bccnd.gateways.broker.sessions import Record, Sessions
from tests.support import PATIENCE, examples

NAMES = [b"C1", b"C2", b"C3", b"C4", b"C5"]
TOPICS = [b"a", b"b", b"c/+", b"*"]
MAX_IDS = 3
MAX_TOPICS = 2
EXPIRE = 100.0


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.drops: Counter[str] = Counter()
        self.sessions = Sessions(MAX_IDS, MAX_TOPICS, EXPIRE, lambda reason: self.drops.update([reason]))
        self.stored: dict[bytes, Record] = {}
        self.now = 1000.0
        self.present: dict[bytes, list[bytes]] = {}
        #: the longest absent first
        self.absent: list[tuple[bytes, float, list[bytes]]] = []

    @rule(name=st.sampled_from(NAMES))
    def connect(self, name: bytes) -> None:
        refused = self.sessions.connect(name, self.now)
        self.absent = [one for one in self.absent if self.now - one[1] < EXPIRE]
        kept = next((one for one in self.absent if one[0] == name), None)
        if name in self.present:
            assert refused == "duplicate_id"
        elif kept is not None:
            assert refused == ""
            self.absent.remove(kept)
            self.present[name] = kept[2]
        elif len(self.present) == MAX_IDS:
            assert refused == "too_many_ids"
        else:
            assert refused == ""
            if len(self.present) + len(self.absent) == MAX_IDS:
                del self.absent[0]
            self.present[name] = []

    @rule(name=st.sampled_from(NAMES))
    def disconnect(self, name: bytes) -> None:
        if name in self.present:
            self.sessions.disconnect(name, self.now)
            topics = self.present.pop(name)
            if topics:
                self.absent.append((name, self.now, topics))

    @rule(name=st.sampled_from(NAMES), topic=st.sampled_from(TOPICS))
    def subscribe(self, name: bytes, topic: bytes) -> None:
        if name not in self.present:
            return
        topics = self.present[name]
        before = self.drops["too_many_subscriptions"]
        new, room = topic not in topics, len(topics) < MAX_TOPICS
        assert self.sessions.subscribe(name, topic) is (new and room)
        assert self.drops["too_many_subscriptions"] - before == (new and not room)
        if new and room:
            topics.append(topic)

    @rule(name=st.sampled_from(NAMES), topic=st.sampled_from(TOPICS))
    def unsubscribe(self, name: bytes, topic: bytes) -> None:
        if name not in self.present:
            return
        topics = self.present[name]
        assert self.sessions.unsubscribe(name, topic) is (topic in topics)
        if topic in topics:
            topics.remove(topic)

    @rule(seconds=st.sampled_from([1.0, 30.0, 100.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def expire(self) -> None:
        old = [one for one in self.absent if self.now - one[1] >= EXPIRE]
        before = self.drops["id_expired"]
        self.sessions.expire(self.now)
        assert self.drops["id_expired"] - before == len(old)
        self.absent = [one for one in self.absent if one not in old]

    @rule()
    def restart(self) -> None:
        """What was stored of the changes is all that the next one knows."""
        self.sessions = Sessions(MAX_IDS, MAX_TOPICS, EXPIRE, lambda reason: self.drops.update([reason]))
        self.sessions.restore(self.stored.values(), self.now)
        self.absent += [(name, self.now, topics) for name, topics in self.present.items() if topics]
        self.present = {}
        self.stored = {}
        self.sessions.changed |= {name for name, *_ in self.absent}

    @invariant()
    def is_as_the_model_says(self) -> None:
        for name in self.sessions.changed:
            record = self.sessions.record(name)
            self.stored.pop(name, None)
            if record.topics:
                self.stored[name] = record
        self.sessions.changed.clear()
        assert len(self.present) + len(self.absent) <= MAX_IDS
        for name, topics in self.present.items():
            assert list(self.sessions.topics(name)) == topics
        expected = [Record(name, seen, tuple(topics)) for name, seen, topics in self.absent]
        expected += [Record(name, None, tuple(topics)) for name, topics in self.present.items() if topics]
        assert self.stored == {record.name: record for record in expected}


TestSessions = Machine.TestCase
TestSessions.settings = settings(max_examples=examples(60), stateful_step_count=40)


def test_only_as_much_is_restored_as_the_limits_allow() -> None:
    drops: Counter[str] = Counter()
    sessions = Sessions(2, 3, 0, lambda reason: drops.update([reason]))
    records = [
        Record(b"old", 10.0, (b"a",)),
        Record(b"from a clock that was wrong", 5000.0, (b"a", b"b", b"c", b"d")),
        Record(b"new", 20.0, (b"b",)),
        Record(b"older", 15.0, (b"x",)),
    ]
    sessions.restore(records, 1000.0)
    assert drops == {"id_evicted": 2, "too_many_subscriptions": 1}
    assert sessions.record(b"new") == (b"new", 20.0, (b"b",))
    assert sessions.record(b"from a clock that was wrong")[1:] == (1000.0, (b"a", b"b", b"c"))
    assert sessions.record(b"old").topics == sessions.record(b"older").topics == ()
    sessions.expire(1e12)  # without an age nothing is forgotten
    assert sessions.record(b"new").topics == (b"b",)


# -- the database: it outlives kills, and never stops a start


ODD: Final = Record(b"\xe4\0 %", 12.5, (b"a/+", b"caf\xc3\xa9", b"\xff"))


NOW: Final = 1000.0


def load(path: str, boot: str = "this", now: float = NOW) -> list[Record]:
    return session_store.load(path, boot, now)[0]


def save(path: str, records: Iterable[Record], boot: str = "this", now: float = NOW) -> None:
    session_store.save(path, records, boot, now)


def sessions() -> Sessions:
    return Sessions(100, 100, 0, Counter[str]().update)


def restored(path: Path, boot: str | None = None) -> tuple[str, Sessions]:
    """What a new store says of the file, and what it has restored."""

    async def scenario() -> tuple[str, Sessions]:
        found = sessions()
        store = SessionStore(str(path), found, boot)
        trouble = store.load()
        await store.close()
        return trouble, found

    return asyncio.run(scenario())


def test_records_are_stored_changed_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "below" / "state.db"
    assert load(str(path)) == []
    save(str(path), [ODD, Record(b"C1", None, (b"a",)), Record(b"C2", 1.0, (b"x", b"y"))])
    save(str(path), [Record(b"C1", 3.0, (b"b", b"c")), Record(b"C2", None, ()), Record(b"C3", None, ())])
    found = {name: (seen, set(topics)) for name, seen, topics in load(str(path))}
    assert found == {ODD.name: (12.5, set(ODD.topics)), b"C1": (3.0, {b"b", b"c"})}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == ["state.db"]


@pytest.mark.parametrize("text", [b"no state", b"{}", b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_damaged_file_is_set_aside_for_a_new_one(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(text)
    Path(f"{path}-journal").write_bytes(b"of the damaged one")
    trouble, found = restored(path)
    assert str(path) in trouble
    assert f"{path}.damaged" in trouble
    assert Path(f"{path}.damaged").read_bytes() == text
    found.connect(b"C1", 1.0)
    found.subscribe(b"C1", b"a")
    save(str(path), [found.record(b"C1")])
    assert restored(path)[0] == ""
    assert [record.name for record in load(str(path))] == [b"C1"]


def test_values_of_wrong_types_and_a_bad_file_stop_nothing(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript("CREATE TABLE ids (id, seen); INSERT INTO ids VALUES ('text', 'text')")
    assert "wrong types" in restored(path)[0]
    (tmp_path / "folder.db").mkdir()
    assert str(tmp_path / "folder.db") in restored(tmp_path / "folder.db")[0]


def test_what_is_stored_changes_as_a_whole(tmp_path: Path) -> None:
    path = str(tmp_path / "state.db")
    before = [Record(b"C1", None, (b"a",))]

    def ends_in_the_middle() -> Iterator[Record]:
        yield Record(b"C1", None, (b"b", b"c"))
        raise KeyboardInterrupt

    save(path, before)
    with pytest.raises(KeyboardInterrupt):
        save(path, ends_in_the_middle())
    assert load(path) == before


def test_a_busy_disk_does_not_stop_the_loop(tmp_path: Path) -> None:
    path = str(tmp_path / "state.db")
    save(path, [])
    with closing(sqlite3.connect(path)) as busy:
        busy.execute("BEGIN EXCLUSIVE")

        async def scenario() -> None:
            found = sessions()
            store = SessionStore(path, found)
            writing = asyncio.create_task(store.write_changes())
            found.connect(b"C1", 1.0)
            found.subscribe(b"C1", b"first")
            while found.changed:  # then a thread waits for the lock
                await asyncio.sleep(0.01)
            found.subscribe(b"C1", b"second")
            busy.rollback()
            writing.cancel()
            await store.close()

        asyncio.run(scenario())
    ((_, _, topics),) = load(path)
    assert set(topics) == {b"first", b"second"}


def test_brokers_at_different_addresses_have_different_files(tmp_path: Path) -> None:
    environment = {"STATE_DIRECTORY": f"{tmp_path}:/another"}
    assert default_path(("127.0.0.1", 5401), environment) == f"{tmp_path}/broker-127.0.0.1-5401.db"
    addresses = [("127.0.0.1", 1), ("127.0.0.1", 2), ("::1", 1), ("0.0.0.0", 1)]
    places = {default_path(tcp, environment) for tcp in addresses}
    assert len(places) == 4
    assert all(os.path.dirname(one) == str(tmp_path) for one in places)


def test_an_id_ages_by_the_clock_of_its_boot_and_not_between_two(tmp_path: Path) -> None:
    path = str(tmp_path / "state.db")
    save(path, [Record(b"long", 100.0, (b"a",)), Record(b"short", 900.0, (b"a",)), Record(b"here", None, (b"a",))])
    times = {record.name: record.seen for record in load(path, now=5000.0)}
    assert times == {b"long": 100.0, b"short": 900.0, b"here": None}
    # After a reboot, early in it.
    times = {record.name: record.seen for record in load(path, "next", 10.0)}
    assert times == {b"long": 10.0 - 900.0, b"short": 10.0 - 100.0, b"here": None}
    # What the next boot has read is stored by its clock.
    before = boot_clock.now()
    assert restored(Path(path), "next")[0] == ""
    seen = {record.name: record.seen or 0.0 for record in load(path, "next")}
    assert seen[b"short"] - seen[b"long"] == pytest.approx(800.0)
    assert before - 100.0 <= seen[b"short"] < before - 100.0 + PATIENCE


def test_ids_that_cannot_be_stored_are_not_kept_for_later(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    async def scenario() -> int:
        found = Sessions(5, 100, 0, Counter[str]().update)
        store = SessionStore(str(tmp_path / "file/state.db"), found)
        assert store.load() == ""
        for number in range(200):
            found.connect(b"%d" % number, float(number))
            if number % 2:
                found.subscribe(b"%d" % number, b"a")
            found.disconnect(b"%d" % number, float(number))
        await store.close()
        return len(found.changed)

    assert asyncio.run(scenario()) <= 5
