"""Groups receivers that get the same messages, so that packets for them are prepared once.

Invariant: every receiver gets its messages in order. A group collects messages until it is taken.
"""

from __future__ import annotations

from typing import Final

from bccnd.core.frames import MAX_BATCH
from bccnd.native import scan

#: estimated bytes of all cached placements
CACHE: Final = 4 << 20
#: estimated bytes of one, besides `RECEIVER_BYTES` for each receiver: a place in its tuple and at most one group
PLACEMENT_BYTES: Final = 320
RECEIVER_BYTES: Final = 16
#: last index of the table of recent placements
LAST_SLOT: Final = 1023
#: calls of `take` before split groups may merge again
MERGE_AFTER: Final = 1024
#: bytes of the length before each message of a batch
LENGTH: Final = 4
#: bytes of messages with their lengths in one packet, behind ``MSGS``, a number and a NUL
MAX_PORTION: Final = MAX_BATCH - 16


class Group:
    """Receivers that got the same messages so far, and the messages to send. ``count`` is the number of receivers;
    ``receivers`` has those that were split off, too, until the messages are taken."""

    __slots__ = ("count", "messages", "receivers")

    def __init__(self, receivers: tuple[int, ...], messages: list[bytes]) -> None:
        self.count = len(receivers)
        self.receivers = receivers
        self.messages = messages


class _Placement:
    """The groups that make up a tuple of receivers, as of a version."""

    __slots__ = ("groups", "receivers", "version")

    def __init__(self, receivers: tuple[int, ...]) -> None:
        #: kept alive, because it is found by its address
        self.receivers = receivers
        self.groups: list[Group] = []
        self.version = -1


class FanoutGroups:
    """The groups, which split when one receiver gets a message that another does not. They are reset at times, so that
    split groups may merge again."""

    def __init__(self) -> None:
        self._placements: dict[int, _Placement] = {}
        #: recently used ones, by address, to save a look-up
        self._latest: list[_Placement | None] = [None] * (LAST_SLOT + 1)
        self._remembered = 0
        self._groups: dict[int, Group] = {}
        #: groups with messages
        self._filled: list[Group] = []
        #: incremented when a group is made or split; outdates placements
        self._version = 0
        self._taken = 0

    def __bool__(self) -> bool:
        """Whether there are messages to take."""
        return bool(self._filled)

    def put(self, receivers: tuple[int, ...], message: bytes) -> None:
        """Add a message for these receivers."""
        slot = scan.address(receivers) >> 4 & LAST_SLOT
        placement = self._latest[slot]
        if placement is None or placement.receivers is not receivers:
            placement = self._latest[slot] = self._placements.get(id(receivers)) or self._remember(receivers)
        if placement.version != self._version:
            self._find(placement)
        for group in placement.groups:
            if not group.messages:
                self._filled.append(group)
            group.messages.append(message)

    def take(self) -> list[tuple[tuple[int, ...], list[bytes]]]:
        """Take the messages put in since the last call: receivers, and the messages for each of them, in order. Each
        receiver is in one group."""
        filled, self._filled = self._filled, []
        taken = []
        for group in filled:
            if group.count != len(group.receivers):
                group.receivers = tuple([one for one in group.receivers if self._groups[one] is group])
            taken.append((group.receivers, group.messages))
            group.messages = []
        self._taken += 1
        if self._taken >= MERGE_AFTER:
            self.reset()
        return taken

    def _remember(self, receivers: tuple[int, ...]) -> _Placement:
        size = PLACEMENT_BYTES + RECEIVER_BYTES * len(receivers)
        self._remembered += size
        if self._remembered > CACHE:
            self._forget_placements()
            self._remembered = size
        placement = self._placements[id(receivers)] = _Placement(receivers)
        return placement

    def _forget_placements(self) -> None:
        self._placements.clear()
        self._latest = [None] * (LAST_SLOT + 1)
        self._remembered = 0

    def reset(self) -> None:
        """Forget all groups, which must have no messages."""
        self._forget_placements()
        self._groups.clear()
        self._taken = 0
        self._version += 1

    def _find(self, placement: _Placement) -> None:
        """Find the groups of these receivers, splitting those that have others too."""
        found: dict[Group | None, list[int]] = {}
        for receiver in placement.receivers:
            found.setdefault(self._groups.get(receiver), []).append(receiver)
        placement.groups = []
        for group, receivers in found.items():
            if group is None or len(receivers) < group.count:
                group = self._split(group, receivers)
            placement.groups.append(group)
        placement.version = self._version

    def _split(self, group: Group | None, receivers: list[int]) -> Group:
        """Make a group for receivers that share ``group`` with others, or have none."""
        own = Group(tuple(receivers), [])
        if group is not None:
            group.count -= own.count
            if group.messages:
                own.messages = group.messages.copy()
                self._filled.append(own)
        for receiver in receivers:
            self._groups[receiver] = own
        self._version += 1
        return own


def portions(messages: list[bytes], limit: int = MAX_PORTION) -> list[list[bytes]]:
    """Split messages into portions of one packet each; a message larger than ``limit`` is a portion of its own."""
    if len(messages) == 1:
        return [messages]
    start = size = 0
    found: list[list[bytes]] = []
    for number, message in enumerate(messages):
        size += LENGTH + len(message)
        if size > limit and number > start:
            found.append(messages[start:number])
            start, size = number, LENGTH + len(message)
    found.append(messages[start:] if start else messages)
    return found
