"""Messages that go out together, and who shares them.

Law: every receiver gets its messages in their order, and those that get the same messages share one run, so that what
is made of it for the kernel is made once. Nothing waits here for a time to come: a run grows until it is taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bccnd.core.frames import MAX_BATCH
from bccnd.native import scan

#: receivers, over all that is remembered of where the receivers of a message stand: 2 MB
CACHE: Final = 1 << 18
#: places for the latest, less one
LAST_SLOT: Final = 1023
#: how often runs are taken before they may come together again
TOGETHER: Final = 1024
#: bytes before each message of a batch
LENGTH: Final = 4
#: bytes of messages, with their lengths, in one packet: it begins with ``MSGS``, a number and a NUL
MAX_PORTION: Final = MAX_BATCH - 16


class Run:
    """Receivers that have got the same messages so far, and those that they are to get now."""

    __slots__ = ("messages", "receivers")

    def __init__(self, receivers: tuple[int, ...], messages: list[bytes]) -> None:
        self.receivers = receivers
        self.messages = messages


class _Place:
    """The runs that the receivers of a message have between them, as of a certain stand."""

    __slots__ = ("receivers", "runs", "stand")

    def __init__(self, receivers: tuple[int, ...]) -> None:
        #: held on to, because it is found by its address
        self.receivers = receivers
        self.runs: list[Run] = []
        self.stand = -1


class FanoutGroups:
    """The runs, which part whenever one of their receivers gets what another does not. Now and then all is forgotten,
    so that those who were parted once may come together again."""

    def __init__(self) -> None:
        self._places: dict[int, _Place] = {}
        #: some of them, for who has no time to ask a dictionary
        self._latest: list[_Place | None] = [None] * (LAST_SLOT + 1)
        self._remembered = 0
        self._runs: dict[int, Run] = {}
        #: with messages
        self._filled: list[Run] = []
        #: goes up whenever a run begins or parts, so that nobody trusts what he remembers of them
        self._stand = 0
        self._taken = 0

    def __bool__(self) -> bool:
        """Whether there is something to take."""
        return bool(self._filled)

    def put(self, receivers: tuple[int, ...], message: bytes) -> None:
        """Add a message for these receivers."""
        slot = scan.address(receivers) >> 4 & LAST_SLOT
        place = self._latest[slot]
        if place is None or place.receivers is not receivers:
            place = self._latest[slot] = self._places.get(id(receivers)) or self._remember(receivers)
        if place.stand != self._stand:
            self._find(place)
        for run in place.runs:
            if not run.messages:
                self._filled.append(run)
            run.messages.append(message)

    def take(self) -> list[tuple[tuple[int, ...], list[bytes]]]:
        """What was put in since the last time: receivers, and the messages that each of them is to get, in order. A
        receiver is named once."""
        filled, self._filled = self._filled, []
        taken = []
        for run in filled:
            taken.append((run.receivers, run.messages))
            run.messages = []
        self._taken += 1
        if self._taken >= TOGETHER:
            self._forget()
        return taken

    def _remember(self, receivers: tuple[int, ...]) -> _Place:
        self._remembered += len(receivers) + 1
        if self._remembered > CACHE:
            self._forget_places()
        place = self._places[id(receivers)] = _Place(receivers)
        return place

    def _forget_places(self) -> None:
        self._places.clear()
        self._latest = [None] * (LAST_SLOT + 1)
        self._remembered = 0

    def _forget(self) -> None:
        """To be called when nothing is in the runs."""
        self._forget_places()
        self._runs.clear()
        self._taken = 0
        self._stand += 1

    def _find(self, place: _Place) -> None:
        """Find the runs that just these receivers have between them; one that others share is parted."""
        found: dict[Run | None, list[int]] = {}
        for receiver in place.receivers:
            found.setdefault(self._runs.get(receiver), []).append(receiver)
        place.runs = []
        for run, receivers in found.items():
            if run is None or len(receivers) < len(run.receivers):
                run = self._part(run, receivers)
            place.runs.append(run)
        place.stand = self._stand

    def _part(self, run: Run | None, receivers: list[int]) -> Run:
        """A run for these receivers alone, who were in ``run`` with others, or in none."""
        own = Run(tuple(receivers), [])
        if run is not None:
            run.receivers = tuple([one for one in run.receivers if one not in receivers])
            if run.messages:
                own.messages = run.messages.copy()
                self._filled.append(own)
        for receiver in receivers:
            self._runs[receiver] = own
        self._stand += 1
        return own


def portions(messages: list[bytes], limit: int = MAX_PORTION) -> Iterator[list[bytes]]:
    """Messages in portions, each for one packet of a batch; one that is too large for any comes alone."""
    start = size = 0
    for number, message in enumerate(messages):
        size += LENGTH + len(message)
        if size > limit and number > start:
            yield messages[start:number]
            start, size = number, LENGTH + len(message)
    yield messages[start:] if start else messages
