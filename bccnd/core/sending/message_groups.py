"""Groups messages by their receivers, so that a packet for all of them is prepared once.

Invariant: every receiver gets its messages in order. A group collects messages until it is taken.
"""

from __future__ import annotations

from typing import Final
from weakref import WeakSet

from bccnd.core.matching.receivers import Group, Part
from bccnd.core.wire.frames import MAX_BATCH

#: calls of `take` before split groups may merge again
MERGE_AFTER: Final = 1024
#: bytes of the length before each message of a batch
LENGTH: Final = 4
#: bytes of messages with their lengths in one packet, behind ``MSGS``, a number and a NUL
MAX_PORTION: Final = MAX_BATCH - 16


class MessageGroups:
    """The groups, which split when one receiver gets a message that another does not. They are reset at times, so that
    split groups may merge again."""

    def __init__(self) -> None:
        #: those that have groups
        self._parts: WeakSet[Part] = WeakSet()
        self._groups: dict[int, Group] = {}
        #: groups with messages
        self._filled: list[Group] = []
        #: incremented when a group is made or split; outdates the groups of parts
        self._version = 0
        self._taken = 0

    def __bool__(self) -> bool:
        """Whether there are messages to take."""
        return bool(self._filled)

    def put(self, part: Part, message: bytes) -> None:
        """Add a message for these receivers."""
        if part.version != self._version:
            self._find(part)
        for group in part.groups:
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

    def reset(self) -> None:
        """Forget all groups, which must have no messages."""
        for part in self._parts:
            part.groups = ()
        self._parts.clear()
        self._groups.clear()
        self._taken = 0
        self._version += 1

    def _find(self, part: Part) -> None:
        """Find the groups of these receivers, splitting those that have others too."""
        found: dict[Group | None, list[int]] = {}
        for receiver in part.all:
            found.setdefault(self._groups.get(receiver), []).append(receiver)
        groups = []
        for group, receivers in found.items():
            if group is None or len(receivers) < group.count:
                group = self._split(group, receivers)
            groups.append(group)
        if not part.groups:
            self._parts.add(part)
        part.groups = tuple(groups)
        part.version = self._version

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
