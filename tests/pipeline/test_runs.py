"""Cells -> runs, without Spark: what is put together, what is looked at row by row, and what that finds."""

from __future__ import annotations

from bccnd.pipeline import runs
from bccnd.pipeline.runs import MAX_PORTS, Cell, Row

SECOND = 1_000_000
PLAIN = Cell("d", "h", "j", "s", 1, 0, 0, 0, 9, 0, 9 * SECOND, 0, 9, 0, 9, 10, 0, 4000, 4000)
NEXT = PLAIN._replace(minute=1, from_rec=10, to_rec=19, from_ts=60 * SECOND, to_ts=69 * SECOND, lo_key=10, hi_key=19)
NEXT = NEXT._replace(first_key=10, last_key=19)


def moved(low: int, high: int) -> Cell:
    """The next cell with other numbers."""
    return NEXT._replace(lo_key=low, hi_key=high, first_key=low, last_key=high)


def test_cells_in_which_numbers_rise_are_one_run() -> None:
    found, suspects = runs.collapse([NEXT, PLAIN])
    assert suspects == []
    assert [(run.from_rec, run.to_rec, run.lo_key, run.hi_key) for run in found] == [(0, 19, 0, 19)]
    # A hole as wide as a jump ends a run, and so do numbers that go back within a count of the receiver.
    assert [len(runs.collapse([PLAIN, moved(low, 1050)])[0]) for low in (1032, 1033)] == [1, 2]
    assert [(run.lo_key, run.hi_key) for run in runs.collapse([PLAIN, moved(1, 10)])[0]] == [(0, 9), (1, 10)]


def test_a_cell_is_looked_at_where_numbers_cannot_only_have_risen() -> None:
    for odd in (
        PLAIN._replace(first_key=3),
        PLAIN._replace(last_key=3),
        PLAIN._replace(fresh=11),
        PLAIN._replace(copies=3, hi_port=4002),
    ):
        assert runs.collapse([odd])[1] == [odd]
        assert runs.collapse([odd._replace(clear=True)])[1] == []
    assert runs.collapse([PLAIN._replace(epoch=0, fresh=20)])[1] == []  # its own broadcasts are there in copies


def test_a_source_with_a_new_port_for_each_message_is_not_looked_at() -> None:
    cells = [
        PLAIN._replace(minute=minute, from_rec=20 * minute, to_rec=20 * minute + 9, copies=1, hi_port=4007)
        for minute in range(MAX_PORTS + 1)
    ]
    assert len(runs.collapse(cells[:-1])[1]) == MAX_PORTS
    assert [cell for cell in runs.collapse(cells)[1] if cell.hi_port == 4007 and cell.minute == 0] == []


def row(number: int, key: int, verdict: str = "accepted", port: int = 4000, epoch: int = 1) -> Row:
    return Row(number, number * SECOND // 10, key, epoch, port, verdict)


def test_a_forgotten_source_that_begins_anew_is_divided_at_the_first_number_that_went_back() -> None:
    found = runs.look_at([row(0, 5), row(1, 6), row(2, 1), row(3, 2), row(4, 7)], [PLAIN])
    assert [(cell.begins, cell.from_rec, cell.to_rec, cell.lo_key, cell.hi_key) for cell in found] == [
        (False, 0, 1, 5, 6),
        (True, 2, 4, 1, 7),
    ]


def test_copies_from_a_new_port_after_which_the_old_one_is_silent_are_a_new_beginning() -> None:
    rows = [row(0, 1), row(1, 2), row(2, 3), row(3, 1, "duplicate", 4001), row(4, 2, "duplicate", 4001)]
    found = runs.look_at(rows, [PLAIN])
    assert [(cell.begins, cell.lo_key, cell.hi_key) for cell in found] == [(False, 1, 3), (True, 1, 2)]
    for speaks in (row(5, 4), row(5, 1, "duplicate")):
        assert [cell.begins for cell in runs.look_at([*rows, speaks], [PLAIN])] == [False]
    same_port = [each._replace(peer_port=4000) for each in rows]
    assert [cell.begins for cell in runs.look_at(same_port, [PLAIN])] == [False]


def test_copies_and_late_messages_are_no_new_beginning() -> None:
    copy = [row(0, 1), row(1, 2), row(2, 2, "duplicate", 4001)]  # of the last message, from another port
    assert [cell.begins for cell in runs.look_at(copy, [PLAIN])] == [False]
    late = [row(0, 1), row(1, 5), row(2, 3, "not_addressed"), row(3, 6)]
    assert [(cell.begins, cell.hi_key) for cell in runs.look_at(late, [PLAIN])] == [(False, 6)]


def test_the_lowest_number_of_all_is_no_new_beginning() -> None:
    lowest = -(2**63)
    rows = [row(0, lowest, "duplicate"), row(1, lowest), row(2, lowest + 1)]
    assert [cell.begins for cell in runs.look_at(rows, [PLAIN._replace(block=lowest >> runs.BLOCK)])] == [False]
