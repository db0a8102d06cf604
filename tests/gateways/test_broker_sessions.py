"""Who is known to the broker, against a model that keeps everything in a list."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bccnd.gateways.broker_sessions import Record, Sessions
from tests.support import examples

NAMES = [b"C1", b"C2", b"C3", b"C4", b"C5"]
TOPICS = [b"a", b"b", b"c/+", b"*"]
MAX_IDS = 3
MAX_TOPICS = 2
EXPIRE = 100.0


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.sessions = Sessions(MAX_IDS, MAX_TOPICS, EXPIRE)
        self.now = 1000.0
        self.present: dict[bytes, list[bytes]] = {}
        #: the longest absent first
        self.absent: list[tuple[bytes, float, list[bytes]]] = []

    @rule(name=st.sampled_from(NAMES))
    def connect(self, name: bytes) -> None:
        said = self.sessions.connect(name, self.now)
        self.absent = [one for one in self.absent if self.now - one[1] < EXPIRE]
        kept = next((one for one in self.absent if one[0] == name), None)
        if name in self.present:
            assert said == "duplicate_id"
        elif kept is not None:
            assert said == ""
            self.absent.remove(kept)
            self.present[name] = kept[2]
        elif len(self.present) == MAX_IDS:
            assert said == "too_many_ids"
        else:
            assert said == ""
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
        expected = False if topic in topics else None if len(topics) == MAX_TOPICS else True
        assert self.sessions.subscribe(name, topic) is expected
        if expected:
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
    def look(self) -> None:
        old = [one for one in self.absent if self.now - one[1] >= EXPIRE]
        assert self.sessions.forget(self.now) == len(old)
        self.absent = [one for one in self.absent if one not in old]

    @rule()
    def restart(self) -> None:
        records = self.sessions.records(self.now)
        self.sessions = Sessions(MAX_IDS, MAX_TOPICS, EXPIRE)
        self.sessions.restore(records, self.now)
        self.absent += [(name, self.now, topics) for name, topics in self.present.items() if topics]
        self.present = {}

    @invariant()
    def is_as_the_model_says(self) -> None:
        assert len(self.sessions) == len(self.present) + len(self.absent) <= MAX_IDS
        for name, topics in self.present.items():
            assert list(self.sessions.topics(name)) == topics
        expected = [Record(name, seen, tuple(topics)) for name, seen, topics in self.absent]
        expected += [Record(name, self.now, tuple(topics)) for name, topics in self.present.items() if topics]
        assert self.sessions.records(self.now) == expected


TestSessions = Machine.TestCase
TestSessions.settings = settings(max_examples=examples(60), stateful_step_count=40)


def test_of_what_was_kept_only_as_much_is_taken_up_as_there_may_be() -> None:
    sessions = Sessions(2, 3, 0)
    kept = [
        Record(b"old", 10.0, (b"a",)),
        Record(b"from a clock that was wrong", 5000.0, (b"a", b"b", b"c", b"d")),
        Record(b"new", 20.0, (b"b", b"b")),
        Record(b"nothing", 15.0, ()),
    ]
    sessions.restore(kept, 1000.0)
    assert sessions.records(0.0) == [
        Record(b"new", 20.0, (b"b",)),
        Record(b"from a clock that was wrong", 1000.0, (b"a", b"b", b"c")),
    ]
    assert (sessions.expired, sessions.evicted, sessions.left_out) == (0, 2, 1)


def test_what_is_forgotten_is_counted_by_the_reason_and_without_an_age_nothing_is() -> None:
    sessions, ageless = Sessions(1, 3, 100.0), Sessions(2, 3, 0)
    for number, name in enumerate((b"C1", b"C2")):
        for one in (sessions, ageless):
            assert one.connect(name, number) == ""
            assert one.subscribe(name, b"a")
            one.disconnect(name, number)
    assert (sessions.expired, sessions.evicted, sessions.left_out) == (0, 1, 0)
    assert sessions.forget(101.0) == 1
    assert (sessions.expired, sessions.evicted, sessions.left_out) == (1, 1, 0)
    assert ageless.forget(1e12) == 0
    assert len(ageless) == 2
