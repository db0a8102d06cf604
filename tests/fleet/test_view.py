"""What people see of the matrix: the worst links first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bccnd.fleet import view
from bccnd.fleet.findings import find
from bccnd.fleet.matrix import STEP, FleetMatrix
from bccnd.fleet.report_format import HeardHost, Report, heard_hosts


def tell(matrix: FleetMatrix, host: str, seq: int, now: float, *heard: tuple[str, int, int]) -> None:
    counts = [HeardHost(sender, 1, received, lost, 0, 0) for sender, received, lost in heard]
    matrix.update(host, host.encode(), seq, Report("1.0.0", 10_000, 1, 1, None, (), heard_hosts(counts)), now)


@given(
    st.lists(st.lists(st.sampled_from([0, 0, 0, 1, 12, 60, 300]), min_size=7, max_size=7), min_size=7, max_size=7),
    st.sampled_from([5, 900, 40_000]),
)
def test_the_findings_are_those_of_all_cells(lost: list[list[int]], received: int) -> None:
    matrix = FleetMatrix(100, 0.0)
    names = [f"host{number}" for number in range(7)]
    for host, row in zip(names, lost, strict=True):
        tell(matrix, host, 1, 1.0, *((sender, received, count) for sender, count in zip(names, row, strict=True)))
    cells = [cell for row in matrix.rows for cell in matrix.cells(row, view.RECENT)]
    assert view.findings(matrix, names[0], 1.0) == find(matrix.rows, cells, names[0], 1.0)


def test_the_worst_links_are_those_that_have_lost_in_the_last_minutes_the_worst_first() -> None:
    matrix = FleetMatrix(100, 0.0)
    tell(matrix, "a", 1, 1.0, ("b", 10, 1), ("c", 1000, 1), ("d", 50, 0))
    tell(matrix, "b", 1, 1.0, ("a", 0, 3), ("b", 10, 5))
    tell(matrix, "c", 1, 1.0, ("a", 90, 0))
    assert [(row["receiver"], row["sender"], row["lost"]) for row in view.worst_links(matrix)] == [
        ("b", "a", 3),
        ("a", "b", 1),
        ("a", "c", 1),
    ]
    for minute in (1, 2):
        matrix.sweep(minute * STEP)
    tell(matrix, "a", 2, 121.0, ("c", 1010, 3))
    assert [(row["receiver"], row["sender"], row["received"], row["lost"]) for row in view.worst_links(matrix)] == [
        ("a", "c", 10, 2)
    ]
