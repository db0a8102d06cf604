"""Each step that finds where a stretch of rows begins, on a few rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bccnd.pipeline.records.row_batch import Batch, Numbers
from bccnd.pipeline.records.task_records import KINDS
from bccnd.pipeline.scanning import stretches
from tests.pipeline.frames import batch

OTHERS = {"verdict": "not_addressed"}
LEAST, MOST = -(2**63), 2**63 - 1


def keys(*given: int, **more: Any) -> Batch:
    return batch(*({"seq_key": key, **more} for key in given))


def all_rows(rows: Batch) -> Numbers:
    return np.arange(len(rows.ts))


@pytest.mark.parametrize(
    ("step", "rows", "expected"),
    [
        (stretches.source_starts, batch({}, {}, {"src": "b/x"}, {"src": "b/x"}, {"journal_id": "j2"}), [0, 2, 4]),
        (stretches.goes_near, keys(5, 1028, 5, 5, 1029), [0, 1, 2, 3]),
        (stretches.rises, keys(5, 6, 6, 1029, 2053), [1, 3]),
        # the difference of numbers may need 64 bits
        (stretches.rises, keys(MOST, LEAST, LEAST + 1, MOST, MOST), [1, 2]),
        (stretches.first_addressed, batch(OTHERS, OTHERS, {}, OTHERS, {}), [2]),
        (stretches.first_addressed, batch({}, OTHERS, {"src": "b/x", **OTHERS}, {"src": "b/x"}, {"src": "b/x"}), [3]),
    ],
)
def test_the_rows_that_a_step_finds(
    step: Callable[[Batch, Numbers], Numbers], rows: Batch, expected: list[int]
) -> None:
    assert np.flatnonzero(step(rows, all_rows(rows))).tolist() == expected


def test_messages_to_other_hosts_that_came_late_are_left_out_however_many() -> None:
    late = [{"seq_key": key, **OTHERS} for key in (3, 4, 7)]
    rows = batch({"seq_key": 6}, *late, {"seq_key": 2})
    assert stretches.without_late(rows, all_rows(rows)).tolist() == [0, 3, 4]


def test_new_rows_begin_a_stretch_where_the_number_count_or_port_does() -> None:
    rows = batch({}, {"seq_key": 1}, {"epoch": 2}, {"epoch": 2, "peer_port": 7}, {"epoch": 2, "peer_port": 7})
    starts = stretches.new_starts(rows, all_rows(rows), stretches.used_ports(rows, all_rows(rows)))
    assert np.flatnonzero(starts).tolist() == [0, 2, 3]
    back = keys(3, 4, 2, 3, 4)
    assert np.flatnonzero(stretches.new_starts(back, all_rows(back), back.peer_port)).tolist() == [0, 2]
    # own broadcasts are not tracked, and may come twice
    own = keys(3, 4, 2, 3, 4, epoch=0)
    assert np.flatnonzero(stretches.new_starts(own, all_rows(own), own.peer_port)).tolist() == [0]


def test_copies_begin_a_stretch_where_numbers_are_far_apart() -> None:
    rows = keys(5, 3, 4, 2000, 1999, verdict="duplicate")
    assert np.flatnonzero(stretches.copy_starts(rows, all_rows(rows), rows.peer_port)).tolist() == [0, 3]


def test_a_source_of_too_many_ports_has_any_port() -> None:
    many = batch(*({"peer_port": port} for port in range(stretches.MAX_PORTS + 1)), {"src": "b/x", "peer_port": 9})
    ports = stretches.used_ports(many, all_rows(many))
    assert set(ports[:-1].tolist()) == {stretches.ANY_PORT}
    assert ports[-1] == 9


def test_what_reports_say_is_in_the_columns_of_stretches() -> None:
    assert KINDS["sent"].items() <= KINDS["stretch"].items()
