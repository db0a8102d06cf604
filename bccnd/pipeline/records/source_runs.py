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

    @property
    def start(self) -> int:
        """The time of the first row on the common clock."""
        return self.from_ts - self.offset

    @property
    def end(self) -> int:
        """The time of the last row on the common clock."""
        return self.to_ts - self.offset


class Carried(NamedTuple):
    """What is known of a source from days whose runs are not here.

    ``number`` is that of its last epoch there, ``hi_key`` the highest number of that, ``to_ts`` when the source was
    last heard on the common clock, at ``host``, in whose journal and count (``epoch``). At its fastest it has sent
    ``pace`` numbers in ``pace_us``. ``following`` is the number of the epoch that follows on the first day that is
    here, if there is one.
    """

    number: int
    host: str
    journal_id: str
    epoch: int
    to_ts: int
    hi_key: int
    pace: int
    pace_us: int
    following: int | None

    def run(self, host: str, journal_id: str, offset: int = 0) -> Run:
        """The last run, as one of a receiver whose clock is ahead by so much."""
        end = self.to_ts + offset
        times, keys = (end - self.pace_us, end), (self.hi_key - self.pace, self.hi_key)
        loose = not self.epoch
        return Run(
            "", host, journal_id, self.epoch, -1, -1, *times, *keys, self.hi_key, self.hi_key, loose, False, offset
        )


class SentRange(NamedTuple):
    """Numbers of a source, from the first to the last, that a report says were broadcast.

    The report was first received at ``ts``, by the clock of the receiver with the smallest time, which is of ``day``;
    on the common clock that is ``moment``.
    """

    day: str
    first: int
    last: int
    ts: int
    moment: int


class Tail(NamedTuple):
    """The last number (``key``) of an epoch that a report of a day tells of, higher than all that were received that
    day; times as in `SentRange`."""

    day: str
    epoch: int
    key: int
    ts: int
    moment: int


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
