"""The receivers of a channel, and the groups of receivers that they make up.

A route owns its `Receivers`; routes with equal receivers share one. It also keeps the groups that the fan-out prepares,
which so live as long as the routes.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any, Final


class Group:
    """Receivers that got the same messages so far, and the messages to send. ``count`` is the number of receivers;
    ``receivers`` has those that were split off, too, until the messages are taken."""

    __slots__ = ("count", "messages", "receivers")

    def __init__(self, receivers: tuple[Any, ...], messages: list[bytes]) -> None:
        self.count = len(receivers)
        self.receivers = receivers
        self.messages = messages


class Part:
    """Receivers that get their messages in the same way, and the ``groups`` that they make up as of a ``version`` of
    `MessageGroups`."""

    __slots__ = ("__weakref__", "all", "groups", "version")

    def __init__(self, receivers: tuple[Any, ...]) -> None:
        self.all = receivers
        self.groups: tuple[Group, ...] = ()
        self.version = -1


class Receivers:
    """``all`` receivers; ``batched`` are those in batch mode and ``single`` the others, as of a ``version`` of these
    modes. ``generation`` is the last generation of cached routes that has counted them."""

    __slots__ = ("__weakref__", "all", "batched", "generation", "single", "version")

    def __init__(self, receivers: tuple[Any, ...]) -> None:
        self.all = receivers
        self.single = Part(receivers)
        self.batched = _NONE
        self.version = 0
        self.generation = 0

    def divide(self, batched: Container[Any], version: int) -> None:
        """Divide them by batch mode; parts that stay the same keep their groups."""
        self.version = version
        chosen = tuple([one for one in self.all if one in batched])
        if chosen != self.batched.all:
            self.batched = Part(chosen) if chosen else _NONE
            self.single = Part(tuple([one for one in self.all if one not in batched]) if chosen else self.all)


_NONE: Final = Part(())
NO_RECEIVERS: Final = Receivers(())
