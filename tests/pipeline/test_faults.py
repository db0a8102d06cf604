"""Faults of hosts and their journals that must not show as loss, and work that must stay bounded."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from bccnd.pipeline.lake.delta import Lake
from bccnd.pipeline.schema import EPOCHS
from tests.pipeline.fleets import causes
from tests.pipeline.hand_made import Journal, lost, numbered, row, tables

#: how others hear the source that all of these tests are about
STEADY = numbered(range(1, 301))
OTHERS = (Journal("h2", STEADY), Journal("h3", STEADY))


AGAIN = numbered(range(1, 201), 100.5)
#: journals of the host h1 that do not make sense, beside others
JOURNALS: dict[str, tuple[Journal, ...]] = {
    "a second recorder": (Journal("h1", STEADY), Journal("h1", STEADY[150:], name="j2")),
    "swapped, overlapping": (Journal("h1", STEADY[:200], name="j2"), Journal("h1", STEADY[100:])),
    "swapped, apart": (Journal("h1", STEADY[150:]), Journal("h1", STEADY[:150], name="j2")),
    "two machines of one name": (Journal("h1", STEADY), Journal("h1", numbered(range(50, 251), 49.3), name="j2")),
    "a clock set back by minutes, then a restart": (
        Journal("h1", STEADY[:150]),
        Journal("h1", numbered(range(151, 301), start=150 - 240), name="j2"),
    ),
    "a clock set back in the middle of a session": (
        Journal("h1", [*STEADY[:150], *numbered(range(151, 301), start=150 - 100)], [(0, 300)]),
    ),
    # a copy that comes minutes late is a restart to the daemon that gets it
    "a restart that one receiver alone claims": (
        Journal(
            "h1",
            [*STEADY[:200], row(199.5, 20, verdict="restart"), row(200.4, 201, verdict="restart"), *STEADY[201:]],
        ),
    ),
}


@pytest.mark.parametrize("journals", JOURNALS.values(), ids=JOURNALS)
def test_odd_journals_of_one_host_restart_no_source(journals: tuple[Journal, ...], tmp_path: Path) -> None:
    rows = tables(tmp_path, *journals, *OTHERS)
    assert causes(rows) == {("m/p/1", 1): "first"}
    assert [link for link in lost(rows) if link[0] != "h1"] == []
    assert sum(everywhere for _, everywhere in lost(rows).values()) == 0


def test_a_restart_that_all_others_heard_is_one(tmp_path: Path) -> None:
    """Of a source that counts from 1: a receiver that was away comes back when its numbers have passed the old ones."""
    heard = [*STEADY[:100], AGAIN[0]._replace(verdict="restart"), *AGAIN[1:]]
    away = [*STEADY[:90], *AGAIN[120:]]
    rows = tables(tmp_path, Journal("h1", heard), Journal("h2", heard), Journal("h3", away, [(0, 89), (220, 300)]))
    assert causes(rows) == {("m/p/1", 1): "first", ("m/p/1", 2): "restart"}
    assert lost(rows) == {}


def test_numbers_without_order_cost_linear_time_and_are_told(tmp_path: Path) -> None:
    """A hostile source jumps with each message. The time for five times as many stays in proportion."""

    def cost(messages: int) -> float:
        jumps = [row(place * 0.01, 1 + place * 2000) for place in range(messages)]
        folder = tmp_path / str(messages)
        began = time.process_time()
        rows = tables(folder, *(Journal(f"h{number}", jumps) for number in range(4)))
        found = list(causes(rows).values())
        assert len(found) <= 1000
        assert (found[-1] == "unordered") == (messages > 1000)
        assert lost(rows) == {} or messages > 1000
        return time.process_time() - began

    cost(500)
    assert cost(8000) < 5 * cost(2000)


def test_numbers_at_the_ends_of_64_bits_stop_nothing(tmp_path: Path) -> None:
    ends = [row(1, 0), row(2, 2**64 - 1, verdict="restart"), row(3, 0, verdict="restart"), row(4, 2**64 - 1)]
    rows = tables(tmp_path, Journal("h1", ends), Journal("h2", [*ends, *numbered(range(5), 10, src="m/q/2")]))
    assert {message["src"] for message in rows["messages"]} == {"m/p/1", "m/q/2"}


def test_numbers_sent_while_no_host_listened_are_not_lost(tmp_path: Path) -> None:
    """A file of each host is missing, as it is while a copy is under way; where one host listened, it is known."""
    early, late = STEADY[:100], STEADY[150:]
    away = [(0.0, 99.0), (150.0, 299.0)]
    apart = [Journal(host, [*early, *late], away) for host in ("h1", "h2")]
    assert lost(tables(tmp_path / "all", *apart)) == {}
    one_listens = tables(tmp_path / "one", *apart, Journal("h3", [*early, *STEADY[110:]]))
    assert lost(one_listens) == {("h3", "m/p/1"): (0, 10)}


def test_what_has_ended_is_not_carried_for_ever(tmp_path: Path) -> None:
    """Programs with a new pid each day: after a week as many are carried as on any later day."""
    days = 8
    daily = [row(day * 86_400 + second, second + 1, src=f"m/p/{day}") for day in range(days) for second in range(3)]
    tables(tmp_path, Journal("h1", daily))
    lake = Lake(str(tmp_path / "tables"))
    carried: dict[str, int] = {}
    for file in lake.files(EPOCHS):
        carried[file.day] = carried.get(file.day, 0) + file.rows
    assert list(carried.values()) == [min(day + 1, 7) for day in range(days)]
