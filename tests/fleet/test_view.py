"""What people see of the matrix: the worst links first."""

from __future__ import annotations

import json
from itertools import pairwise
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from bccnd.fleet import view
from bccnd.fleet.findings import find
from bccnd.fleet.matrix import STEP, FleetMatrix
from bccnd.fleet.report_format import HeardHost, Report, heard_hosts
from bccnd.fleet.steps import complete


def tell(matrix: FleetMatrix, host: str, seq: int, now: float, *heard: tuple[str, int, int]) -> None:
    counts = [HeardHost(sender, 1, received, lost, 0, 0) for sender, received, lost in heard]
    matrix.update(host, host.encode(), seq, Report("1.0.0", 10_000, 1, 1, None, (), heard_hosts(counts)), now)


@given(
    st.lists(st.lists(st.sampled_from([0, 0, 0, 1, 12, 60, 300]), min_size=7, max_size=7), min_size=7, max_size=7),
    st.sampled_from([5, 900, 40_000]),
)
def test_the_findings_are_those_of_all_cells(lost: list[list[int]], received: int) -> None:
    matrix = FleetMatrix(lambda: 100, 0.0)
    names = [f"host{number}" for number in range(7)]
    for host, row in zip(names, lost, strict=True):
        tell(matrix, host, 1, 1.0, *((sender, received, count) for sender, count in zip(names, row, strict=True)))
    cells = [cell for row in matrix.rows for cell in matrix.cells(row, view.RECENT)]
    assert complete(view.findings(matrix, names[0], 1.0)) == complete(find(matrix.rows, cells, names[0], 1.0))


def test_the_worst_links_of_the_last_minutes_come_first() -> None:
    matrix = FleetMatrix(lambda: 100, 0.0)
    tell(matrix, "a", 1, 1.0, ("b", 10, 1), ("c", 1000, 1), ("d", 50, 0))
    tell(matrix, "b", 1, 1.0, ("a", 0, 3), ("b", 10, 5))
    tell(matrix, "c", 1, 1.0, ("a", 90, 0))
    assert [(row["receiver"], row["sender"], row["lost"]) for row in view.worst_links(matrix) if row] == [
        ("b", "a", 3),
        ("a", "b", 1),
        ("a", "c", 1),
    ]
    for minute in (1, 2):
        matrix.sweep(minute * STEP)
    tell(matrix, "a", 2, 121.0, ("c", 1010, 3))
    assert [
        (row["receiver"], row["sender"], row["received"], row["lost"]) for row in view.worst_links(matrix) if row
    ] == [("a", "c", 10, 2)]


def test_an_answer_is_made_in_steps_of_one_host() -> None:
    size = 60
    matrix = FleetMatrix(lambda: 100, 0.0)
    names = [f"host{number:02d}" for number in range(size)]
    for host in names:
        tell(matrix, host, 1, 1.0, *((sender, 500, 100) for sender in names))
    whole = [row for row in view.fleet(matrix, names[0], 1.0) if row]
    assert sum("links" in row for row in whole) == size * (size - 1)
    with patch.object(matrix, "cells", wraps=matrix.cells) as cells:
        text = view.to_json(view.fleet(matrix, names[0], 1.0), ("hosts", "links", "findings"), {"own": names[0]})
        read = [0]
        try:
            while True:
                next(text)
                read.append(cells.call_count)
        except StopIteration as end:
            found = json.loads(end.value)
    assert max(later - before for before, later in pairwise(read)) == 1
    assert read[-1] == 2 * size
    assert len(read) > 3 * size + len(whole) / view.PAUSE
    assert {name: len(rows) for name, rows in found.items() if name != "own"} == {
        name: sum(name in row for row in whole) for name in ("hosts", "links", "findings")
    }
    assert found["findings"] == [
        dict(row["findings"], about=list(row["findings"]["about"])) for row in whole if "findings" in row
    ]
