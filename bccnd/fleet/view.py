"""Makes of the matrix what people and programs see: hosts, links and findings as rows, and the whole as a table.

Invariant: the work for many hosts is done in steps. An answer is an iterator of rows, each under the name of its list,
and of None where its reader should pause.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from bccnd.fleet.findings import FleetFinding, find
from bccnd.fleet.matrix import Cell, FleetMatrix, HostRow
from bccnd.fleet.steps import Steps

#: minutes of which findings speak, unless a time is asked for
RECENT: Final = 10
#: links in one answer
MAX_LINKS: Final = 10_000
#: rows written between two pauses
PAUSE: Final = 50
#: links among the worst
MAX_WORST: Final = 100

Row = dict[str, Any]
Rows = Iterator[Row | None]


def host_rows(matrix: FleetMatrix, own: str, now: float) -> list[Row]:
    """Return the hosts that report, by name."""
    return [
        {
            "host": row.host,
            "version": row.version,
            "age_s": _age(row, own, now),
            "silent": row.host != own and row.silent(now),
            "keys": {"algorithm": row.keys[0], "fingerprints": list(row.keys[1])},
        }
        for row in sorted(matrix.rows, key=lambda row: row.host)
    ]


class _Ranked(NamedTuple):
    """A link; sorted, the one that loses the greatest share comes first."""

    minus_share: float
    minus_lost: int
    cell: Cell
    row: HostRow


def _rank(matrix: FleetMatrix, rows: Iterable[HostRow], minutes: int | None, limit: int) -> Steps[list[_Ranked]]:
    """Return up to ``limit`` links, the worst first."""
    worst: list[_Ranked] = []
    added: list[_Ranked] = []
    for row in rows:
        # Where nothing is lost, links only fill the answer.
        if len(worst) + len(added) >= limit and not row.loses:
            break
        yield
        added += [_ranked(cell, row) for cell in matrix.cells(row, minutes) if cell.receiver != cell.sender]
        if len(added) > limit / 4:
            worst, added = sorted(worst + added)[:limit], []
    return sorted(worst + added)[:limit]


def _ranked(cell: Cell, row: HostRow) -> _Ranked:
    lost = cell.lost
    return _Ranked(-lost / (cell.received + lost) if lost else 0.0, -lost, cell, row)


def worst_links(matrix: FleetMatrix) -> Rows:
    """Yield up to `MAX_WORST` links that have lost something in this minute and the one before, the worst first."""
    losing = (row for row in matrix.rows if row.loses and any(row.counters[1].recent(1)))
    worst = yield from _rank(matrix, losing, 1, MAX_WORST)
    yield from (cell._asdict() for _, _, cell, _ in worst if cell.lost)


def findings(matrix: FleetMatrix, own: str, now: float, minutes: int | None = None) -> Steps[list[FleetFinding]]:
    """Return the findings of the last minutes."""
    recent = minutes or RECENT
    sums = yield from matrix.sum_losses(recent)
    cells = yield from matrix.suspect_cells(sums, recent)
    return (yield from find(matrix.rows, cells, own, now, sums))


def fleet(matrix: FleetMatrix, own: str, now: float, minutes: int | None = None) -> Rows:
    """Yield all, each row under the name of its list: since the start of each daemon, or of the last minutes."""
    for row in host_rows(matrix, own, now):
        yield {"hosts": row}
    rows = sorted(matrix.rows, key=lambda row: not row.loses)
    for _, _, cell, host in (yield from _rank(matrix, rows, minutes, MAX_LINKS)):
        yield {"links": cell._asdict() | {"age_s": _age(host, own, now)}}
    for finding in (yield from findings(matrix, own, now, minutes)):
        yield {"findings": finding._asdict()}


def table(matrix: FleetMatrix, own: str, now: float) -> Rows:
    """Yield the last minutes as a table: a row for each receiver, whose counts are by ``senders``."""
    senders = sorted(matrix.senders)
    for sender in senders:
        yield {"senders": sender}
    for row in sorted(matrix.rows, key=lambda row: row.host):
        yield None
        yield {
            "receivers": {
                "host": row.host,
                "age_s": _age(row, own, now),
                "silent": row.host != own and row.silent(now),
                "counts": matrix.recent_counts(row, senders, RECENT),
            }
        }
    for finding in (yield from findings(matrix, own, now, RECENT)):
        yield {"findings": finding._asdict()}


def to_json(rows: Rows, names: Iterable[str], more: Row) -> Steps[bytes]:
    """Return lists of rows by ``names``, and what there is ``more``, as one JSON object."""
    lists: dict[str, list[str]] = {name: [] for name in names}
    for number, row in enumerate(rows):
        if row is None or number % PAUSE == 0:
            yield
        for name, value in (row or {}).items():
            lists[name].append(_dump(value))
    members = [f"{_dump(name)}:{_dump(value)}" for name, value in more.items()]
    members += (f"{_dump(name)}:[{','.join(texts)}]" for name, texts in lists.items())
    return f"{{{','.join(members)}}}".encode()


def _dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _age(row: HostRow, own: str, now: float) -> float:
    return 0.0 if row.host == own else round(now - row.heard, 3)
