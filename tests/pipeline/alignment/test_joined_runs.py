"""Stretches of rows -> runs: what is put together, and what begins anew."""

from __future__ import annotations

from typing import Any

import pytest

from bccnd.pipeline.alignment.joined_runs import Stretch, runs
from bccnd.pipeline.records import task_records
from bccnd.pipeline.scanning.stretches import MAX_PORTS
from tests.pipeline.frames import records

Row = tuple[int, str, int]


def row(key: int, verdict: str = "accepted", port: int = 4000) -> dict[str, Any]:
    return {"seq_key": key, "verdict": verdict, "peer_port": port}


def numbers(*given: dict[str, Any], cut: int = 0) -> list[tuple[bool, int, int]]:
    """The runs of rows, which are in two files if they are cut: whether each began unnoticed, and its numbers."""
    whole = [{"s": number / 10, "rec_no": number, **row} for number, row in enumerate(given)]
    stretches = []
    for part in (whole[:cut], whole[cut:]):
        if part:
            table = task_records.fields_of(records(*part), "stretch").select(list(Stretch._fields))
            stretches += [Stretch(*row.values()) for row in table.to_pylist()]
    return [(run.masked, run.lo_key, run.hi_key) for run in runs(stretches)]


NEW_PORT = [row(1), row(2), row(3), row(1, "duplicate", 4001), row(2, "duplicate", 4001)]
LOWEST = -(2**63)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([row(key) for key in range(20)], [(False, 0, 19)]),
        ([row(0), row(1023)], [(False, 0, 1023)]),
        # a hole as wide as a jump ends a run
        ([row(0), row(1024)], [(False, 0, 0), (False, 1024, 1024)]),
        # a source that was forgotten, and begins anew
        ([row(5), row(6), row(1), row(2), row(7)], [(False, 5, 6), (True, 1, 7)]),
        # copies from a new port behind which the old one is silent are a new beginning
        (NEW_PORT, [(False, 1, 3), (True, 1, 2)]),
        ([*NEW_PORT, row(3, "duplicate", 4001), row(4, port=4001)], [(False, 1, 3), (True, 1, 4)]),
        ([*NEW_PORT, row(4)], [(False, 1, 4)]),
        ([*NEW_PORT, row(1, "duplicate")], [(False, 1, 3)]),
        ([row | {"peer_port": 4000} for row in NEW_PORT], [(False, 1, 3)]),
        # a copy of the last message from another port is none
        ([row(1), row(2), row(2, "duplicate", 4001)], [(False, 1, 2)]),
        # nor is what was meant for other hosts and came late
        ([row(1), row(5), row(3, "not_addressed"), row(6)], [(False, 1, 6)]),
        ([row(5), row(3, "not_addressed"), row(4, "not_addressed"), row(6, "not_addressed")], [(False, 5, 6)]),
        ([row(LOWEST, "duplicate"), row(LOWEST), row(LOWEST + 1)], [(False, LOWEST, LOWEST + 1)]),
        # where only copies came, or the receiver's own broadcasts, small steps back mean nothing
        ([row(3, "duplicate"), row(1, "duplicate"), row(2, "stale")], [(False, 1, 3)]),
        ([row(key, "looped") | {"epoch": 0} for key in (1, 1, 3, 2)], [(False, 1, 3)]),
    ],
)
def test_runs_of_rows_however_they_are_cut(given: list[dict[str, Any]], expected: list[Any]) -> None:
    for cut in range(len(given)):
        assert numbers(*given, cut=cut) == expected


def test_ports_say_nothing_where_each_message_has_its_own() -> None:
    copies = [row(key, "duplicate", 5000 + key) for key in range(MAX_PORTS)]
    assert len(numbers(row(100), *copies[: MAX_PORTS - 1])) > 1
    assert numbers(row(100), *copies) == [(False, 100, 100)]
