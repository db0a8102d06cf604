"""Records in slots: a dictionary that a successor finds again, in the same order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bccnd.core.tracking.record_table import RecordTable
from bccnd.native.memory import slot_layout
from bccnd.native.memory.private_memory import private_memory
from tests.core.material import examples


@given(st.lists(st.tuples(st.sampled_from(["put", "put", "drop", "oldest"]), st.integers(0, 6), st.floats(0, 9))))
@examples(200)
def test_records_are_an_ordered_dictionary(steps: list[tuple[str, int, float]]) -> None:
    memory = private_memory(20)
    table = RecordTable(memory, slot_layout.DEATH, "=dQ")
    naive: dict[bytes, tuple[float, int]] = {}
    for step, number, value in steps:
        key = b"key %d" % number
        if step == "put":
            naive.pop(key, None)
            naive[key] = value, number
            table.put(key, value, number)
        elif step == "drop":
            naive.pop(key, None)
            table.drop(key)
        else:
            naive.pop(next(iter(naive), b""), None)
            table.drop_oldest()
        assert len(table) == len(naive)
        again = RecordTable(memory, slot_layout.DEATH, "=dQ")
        assert list(again.load()) == list(naive.items())
    assert list(RecordTable(memory, slot_layout.ENDED, "=d").load()) == []


def test_of_two_records_with_one_key_the_first_is_kept_and_the_other_is_freed() -> None:
    memory = private_memory(20)
    for order, key in enumerate((b"a", b"a", b"b")):
        memory.source(memory.take(slot_layout.DEATH, key)).last = order
    assert [key for key, _ in RecordTable(memory, slot_layout.DEATH, "=d").load()] == [b"a", b"b"]
    assert len(memory.numbers(slot_layout.DEATH)) == 2
