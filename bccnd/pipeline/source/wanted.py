"""Which files of a journal can matter, by their names, and which rows of them are wanted.

Law: what is not known to be needless is wanted. Nothing here needs Spark.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow.compute as pc

from bccnd.journal import layout


@dataclass
class Wanted:
    """``hosts`` and ``journals`` are the only ones that can matter, where they are known; days are ``YYYY-MM-DD``."""

    hosts: frozenset[str] | None = None
    journals: frozenset[str] | None = None
    first_day: str = ""
    last_day: str = "9999-99-99"
    expression: pc.Expression | None = None

    def may_hold(self, file: layout.ObsFile) -> bool:
        """Whether a file can have rows that are wanted."""
        return (
            (self.hosts is None or file.host in self.hosts)
            and (self.journals is None or file.journal_id in self.journals)
            and self.may_be_on(file.day)
        )

    def may_be_on(self, day: str) -> bool:
        return self.first_day <= day <= self.last_day
