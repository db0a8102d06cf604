"""Groups a stream of batches and adds each group up, in bounded memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

#: rows of partial sums before they are merged
_WAITING: Final = 200_000


class GroupedSums:
    """``how`` names the aggregation of each column: sum, min or max. Of more than ``cap`` groups the ones with the
    greatest first column are kept."""

    def __init__(self, keys: Sequence[str], how: Mapping[str, str], cap: int) -> None:
        self._keys = list(keys)
        self._how = dict(how)
        self._order = [(next(iter(how)), "descending"), *((key, "ascending") for key in keys)]
        self._cap = cap
        self._parts: list[pa.Table] = []
        self._waiting = 0
        #: groups that were dropped (one that comes back after that counts again), and their sums by column
        self.folded = 0
        self.rest = {name: 0 for name, one in how.items() if one == "sum"}

    def add(self, table: pa.Table) -> None:
        """Add rows; columns that are not needed are ignored."""
        if table.num_rows:
            self._parts.append(self._grouped(table))
            self._waiting += self._parts[-1].num_rows
            if self._waiting > _WAITING:
                self._merge()

    def rows(self) -> list[dict[str, Any]]:
        """The groups, the heaviest first."""
        self._merge()
        return list(self._parts[0].sort_by(self._order).to_pylist()) if self._parts else []

    def _grouped(self, table: pa.Table) -> pa.Table:
        sums = table.group_by(self._keys, use_threads=False).aggregate(list(self._how.items()))
        names = [*self._keys, *(f"{name}_{how}" for name, how in self._how.items())]
        return sums.select(names).rename_columns([*self._keys, *self._how])

    def _merge(self) -> None:
        if not self._parts:
            return
        table = self._grouped(pa.concat_tables(self._parts))
        if table.num_rows > self._cap:
            table = table.sort_by(self._order)
            dropped = table.slice(self._cap)
            self.folded += dropped.num_rows
            for name in self.rest:
                self.rest[name] += pc.sum(dropped[name]).as_py() or 0
            table = table.slice(0, self._cap)
        self._parts, self._waiting = [table], 0
