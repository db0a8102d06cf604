"""What is known of sources: the runs of their rows at receivers, and the epochs that follow from these.

An epoch is one run of a source between restarts. Times are microseconds since 1970, numbers are those of messages
(`seq_key`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

#: numbers: as far as this, back or forward, is a new epoch (`DedupRules.sanity`)
SANITY: Final = 1024
#: microseconds
SECOND: Final = 1_000_000
#: microseconds after which nothing is a late copy (`DedupRules.horizon`)
HORIZON: Final = 2_000_000
#: beyond any number, record or time
ENDLESS: Final = 2**63 - 1

#: the causes of epochs
FIRST: Final = "first"
RESTART: Final = "restart"
JUMP: Final = "jump"
MASKED: Final = "masked"


class Run(NamedTuple):
    """Rows of one source at one receiver in which the numbers only rise, all of one day.

    ``epoch`` is the receiver's own count (0: its own broadcasts, which are not tracked); from and to are those of
    the first and the last row, times by the receiver's clock, which is ``offset`` microseconds ahead of the common one,
    give or take ``spread``. ``loose``: copies are among the rows, so that small steps back mean nothing. ``masked``:
    the rows show that the source began anew before this run, though the receiver's daemon did not notice.
    """

    day: str
    host: str
    journal_id: str
    epoch: int
    from_rec: int
    to_rec: int
    from_ts: int
    to_ts: int
    lo_key: int
    hi_key: int
    first_key: int
    last_key: int
    loose: bool
    masked: bool
    offset: int = 0
    spread: int = 0


class Piece(NamedTuple):
    """Rows of a journal that are of one epoch; all bounds belong to it."""

    host: str
    journal_id: str
    from_rec: int
    to_rec: int
    from_ts: int
    to_ts: int
    lo_key: int
    hi_key: int
    epoch: int


class Epoch(NamedTuple):
    """A run of a source. ``number`` is the second (unix time) in which it began, or the next one that is free."""

    number: int
    cause: str


def went_back(old: Run, new: Run) -> bool:
    """Whether numbers went back between two runs for certain, whatever copies may have come again."""
    back = old.last_key - new.first_key
    if old.loose or new.loose:
        return back >= SANITY
    return back >= SANITY or (back >= 0 and new.from_ts - old.to_ts > HORIZON)
