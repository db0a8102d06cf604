"""The ids that the broker knows, against a model that keeps everything in a list."""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bccnd.gateways.broker.sessions import Record, Sessions
from tests.support import examples

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
