"""Makes of the matrix what people and programs see: hosts, links and findings as rows, and the whole as a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from bccnd.fleet.findings import Finding, find
from bccnd.fleet.matrix import Cell, FleetMatrix, HostRow

#: minutes of which findings speak, unless a time is asked for
RECENT: Final = 10
#: links in one answer
MAX_LINKS: Final = 10_000
#: links among the worst
MAX_WORST: Final = 100

Row = dict[str, Any]


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


def link_rows(matrix: FleetMatrix, own: str, now: float, minutes: int | None) -> list[Row]:
    """Return up to `MAX_LINKS` links, the worst first."""
    found: list[tuple[Cell, HostRow]] = []
    # Where nothing is lost, links are only a filling.
    for row in sorted(matrix.rows, key=lambda row: not row.loses):
        if len(found) >= MAX_LINKS and not row.loses:
            break
        found += [(cell, row) for cell in matrix.cells(row, minutes) if cell.receiver != cell.sender]
    found.sort(key=lambda one: _badness(one[0]))
    return [cell._asdict() | {"age_s": _age(row, own, now)} for cell, row in found[:MAX_LINKS]]


def worst_links(matrix: FleetMatrix) -> Iterator[Row]:
    """Yield up to `MAX_WORST` links that have lost something in this minute and the one before, the worst first."""
    found = sorted(matrix.losing_cells(1), key=_badness)
    return (cell._asdict() for cell in found[:MAX_WORST])


def finding_rows(matrix: FleetMatrix, own: str, now: float, minutes: int | None) -> list[Row]:
    return [one._asdict() for one in findings(matrix, own, now, minutes)]


def findings(matrix: FleetMatrix, own: str, now: float, minutes: int | None = None) -> list[Finding]:
    """Return the findings of the last minutes."""
    recent = minutes or RECENT
    sums = matrix.sum_losses(recent)
    return find(matrix.rows, matrix.suspect_cells(sums, recent), own, now, sums)


def fleet(matrix: FleetMatrix, own: str, now: float, minutes: int | None = None) -> Row:
    """Return all: since the start of each daemon, or of the last minutes."""
    return {
        "hosts": host_rows(matrix, own, now),
        "links": link_rows(matrix, own, now, minutes),
        "findings": finding_rows(matrix, own, now, minutes),
    }


def listing(matrix: FleetMatrix, own: str, now: float, minutes: int | None = None) -> Iterator[Row]:
    """Yield the same, one row at a time, each under the name of its list."""
    for name, rows in fleet(matrix, own, now, minutes).items():
        for row in rows:
            yield {name: row}


def table(matrix: FleetMatrix, own: str, now: float) -> Row:
    """Return the last minutes as a table: a row for each receiver, a column for each sender."""
    rows = sorted(matrix.rows, key=lambda row: row.host)
    senders = sorted(matrix.senders)
    return {
        "own": own,
        "minutes": RECENT,
        "senders": senders,
        "receivers": [
            {
                "host": row.host,
                "age_s": _age(row, own, now),
                "silent": row.host != own and row.silent(now),
                "counts": matrix.recent_counts(row, senders, RECENT),
            }
            for row in rows
        ],
        "findings": finding_rows(matrix, own, now, RECENT),
    }


def _age(row: HostRow, own: str, now: float) -> float:
    return 0.0 if row.host == own else round(now - row.heard, 3)


def _badness(cell: Cell) -> tuple[float, int, str, str]:
    """Return by what links are sorted."""
    ratio = cell.lost / (cell.received + cell.lost) if cell.lost else 0.0
    return -ratio, -cell.lost, cell.receiver, cell.sender
