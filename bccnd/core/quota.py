"""What each user may take up, and what his clients are charged for.

Law: whatever a client makes the daemon keep is a charge on its user, taken back when it goes; a user at his limit
is refused, slowed or loses messages, and nobody else notices. Numbers only: who is told what is for others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

#: estimated bytes that the patterns of a user may take up, for each subscription that it may hold, and at least
PATTERN_BYTES: Final = 1024
LEAST_PATTERN_BYTES: Final = 64 << 10
#: seconds of the publish rate that a user may use up at once
BURST: Final = 1.0


@dataclass(frozen=True)
class UserLimits:
    """What all clients of one user together may take up; ``rate`` is in messages a second, 0 for as fast as can be."""

    clients: int = 750
    subscriptions: int = 65_536
    queue_bytes: int = 64 << 20
    rate: float = 0.0

    @property
    def pattern_bytes(self) -> int:
        """What all patterns may take up in memory."""
        return max(LEAST_PATTERN_BYTES, PATTERN_BYTES * self.subscriptions)


class UserAccount:
    """The charges of one user."""

    __slots__ = ("clients", "queue_bytes", "round", "seconds", "stamp", "subscriptions", "tokens", "uid")

    def __init__(self, uid: int) -> None:
        self.uid = uid
        self.clients = 0
        self.subscriptions = 0
        self.queue_bytes = 0
        #: messages that may be published at once, as of ``stamp``
        self.tokens = 0.0
        self.stamp = float("-inf")
        #: the round of the loop in which a client of the user was served last, and the seconds that took
        self.round = -1
        self.seconds = 0.0

    def left_of(self, number: int, share: float) -> float:
        """Seconds of their share that may still be spent on the user's clients in this round of the loop."""
        if self.round != number:
            self.round, self.seconds = number, 0.0
        return share - self.seconds


class Quota:
    """The accounts of all users that are here, and of those who have just left."""

    def __init__(self, limits: UserLimits) -> None:
        self.limits = limits
        self._accounts: dict[int, UserAccount] = {}

    def __len__(self) -> int:
        return len(self._accounts)

    def __iter__(self) -> Iterator[UserAccount]:
        return iter(list(self._accounts.values()))

    def account(self, uid: int) -> UserAccount | None:
        """The account of a user who is here, or has just left."""
        return self._accounts.get(uid)

    def open(self, uid: int, now: float) -> UserAccount | None:
        """Charge a client; None for one too many. ``now`` in seconds, monotonic."""
        if uid not in self._accounts:
            self._forget_who_left(now)
        account = self._accounts.setdefault(uid, UserAccount(uid))
        if account.clients >= self.limits.clients:
            return None
        account.clients += 1
        return account

    def reopen(self, uid: int) -> UserAccount:
        """Charge a client that was admitted before; it may be one too many by now."""
        account = self._accounts.setdefault(uid, UserAccount(uid))
        account.clients += 1
        return account

    def close(self, account: UserAccount, now: float) -> None:
        """Take a client's charge back; the other charges are taken back by whoever made them.

        Who has used up his rate stays known until he may publish as before: leaving gains him nothing.
        """
        account.clients -= 1
        if not account.clients and self._rested(account, now):
            del self._accounts[account.uid]

    def _forget_who_left(self, now: float) -> None:
        for account in list(self._accounts.values()):
            if not account.clients and self._rested(account, now):
                del self._accounts[account.uid]

    def _burst(self) -> float:
        """Messages that may come at once: at least one, however low the rate."""
        return max(1.0, self.limits.rate * BURST)

    def _rested(self, account: UserAccount, now: float) -> bool:
        return (now - account.stamp) * self.limits.rate >= self._burst() or not self.limits.rate

    def publish(self, account: UserAccount, now: float) -> float:
        """Charge a message against the user's rate: 0, or the seconds after which he may try again."""
        rate = self.limits.rate
        if not rate:
            return 0.0
        account.tokens = min(self._burst(), account.tokens + (now - account.stamp) * rate)
        account.stamp = now
        if account.tokens >= 1.0:
            account.tokens -= 1.0
            return 0.0
        return (1.0 - account.tokens) / rate
