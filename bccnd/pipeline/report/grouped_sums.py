"""Groups a stream of batches and adds each group up, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

#: rows of partial sums before they are merged
_WAITING: Final = 200_000


class GroupedSums(NamedTuple):
    """The groups that were kept, how many were dropped (one that comes back after that counts again), and what these
    add up to."""

    rows: list[dict[str, Any]]
    dropped: int
    rest: dict[str, int]


def add_up(batches: Iterable[pa.Table], keys: Sequence[str], how: Mapping[str, str], cap: int) -> GroupedSums:
    """``how`` names the aggregation of each column: sum, min or max. Of more than ``cap`` groups the ones with the
    greatest first column are kept. The greatest come first."""
    order = [(next(iter(how)), "descending"), *((key, "ascending") for key in keys)]
    rest, dropped = {name: 0 for name, one in how.items() if one == "sum"}, 0
    parts: list[pa.Table] = []
    for batch in chain(batches, [None]):
        if batch is not None:
            parts.append(_grouped(batch, keys, how))
        if parts and (batch is None or sum(part.num_rows for part in parts[1:]) > _WAITING):
            table = _grouped(pa.concat_tables(parts), keys, how).sort_by(order)
            parts, rows = [table.slice(0, cap)], table.slice(cap)
            dropped += rows.num_rows
            rest = {name: count + (pc.sum(rows[name]).as_py() or 0) for name, count in rest.items()}
    return GroupedSums(parts[0].to_pylist() if parts else [], dropped, rest)


def _grouped(table: pa.Table, keys: Sequence[str], how: Mapping[str, str]) -> pa.Table:
    sums = table.group_by(list(keys), use_threads=False).aggregate(list(how.items()))
    names = [*keys, *(f"{name}_{one}" for name, one in how.items())]
    return sums.select(names).rename_columns([*keys, *how])
