"""Quotas per user: clients, subscriptions, queue memory, publish rate and time in a round of the loop.

Invariant: whatever the daemon stores for a client is charged to its user until it is freed, so that a user at a limit
affects no other user.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final

#: estimated bytes of patterns allowed per allowed subscription, and at least
PATTERN_BYTES: Final = 1024
LEAST_PATTERN_BYTES: Final = 64 << 10
#: seconds of the publish rate that may be used at once
BURST: Final = 1.0
#: seconds that one round of the loop spends on packets of a user
ROUND_SECONDS: Final = 0.005
#: rounds whose share a user may have used up ahead, by work that could not be interrupted
MAX_DEBT: Final = 20


def pattern_bytes(subscriptions: int) -> int:
    """Return the most estimated bytes of all patterns of a user that may have so many."""
    return max(LEAST_PATTERN_BYTES, PATTERN_BYTES * subscriptions)


class UserAccount:
    """Current usage of one user."""

    __slots__ = (
        "blocked",
        "clients",
        "listings",
        "queue_bytes",
        "round",
        "seconds",
        "stamp",
        "subscriptions",
        "timer",
        "tokens",
        "uid",
    )

    def __init__(self, uid: int) -> None:
        self.uid = uid
        self.clients = 0
        self.subscriptions = 0
        self.queue_bytes = 0
        #: tokens of the rate limit as of ``stamp``
        self.tokens = 0.0
        self.stamp = float("-inf")
        #: clients with an unfinished listing, the one that asked for a page longest ago first
        self.listings: OrderedDict[Any, None] = OrderedDict()
        #: clients that the rate blocks, the first to be unblocked first, and the timer for the next of them
        self.blocked: OrderedDict[Any, None] = OrderedDict()
        self.timer: Any = None
        #: the latest round of the loop that served the user's clients, and the seconds spent
        self.round = -1
        self.seconds = 0.0

    def left_of(self, number: int, round_seconds: float) -> float:
        """Return the seconds of this round of the loop that are left to the user.

        Time used beyond its share of earlier rounds is subtracted from this one and, up to a limit, the next ones.
        """
        if self.round != number:
            debt = self.seconds - round_seconds * (number - self.round)
            self.round = number
            self.seconds = min(debt, MAX_DEBT * round_seconds) if debt > 0.0 else 0.0
        return round_seconds - self.seconds

    def charge(self, number: int, round_seconds: float, seconds: float) -> None:
        """Charge time that was spent for the user in this round of the loop."""
        self.left_of(number, round_seconds)
        self.seconds += seconds


class Quota:
    """Accounts of users with clients, and of those whose rate limit has not recovered. ``rate`` is in messages a second
    for all clients of a user together, 0 for no limit."""

    def __init__(self, rate: float = 0.0) -> None:
        self.rate = rate
        self.round_seconds = ROUND_SECONDS
        self._accounts: dict[int, UserAccount] = {}

    def __len__(self) -> int:
        return len(self._accounts)

    def __iter__(self) -> Iterator[UserAccount]:
        return iter(list(self._accounts.values()))

    def account(self, uid: int) -> UserAccount | None:
        """Return a user's account, if there is one."""
        return self._accounts.get(uid)

    def open(self, uid: int, now: float, max_clients: int) -> UserAccount | None:
        """Charge a client; None if the user has that many already. ``now`` in seconds, monotonic."""
        if uid not in self._accounts:
            self._remove_idle(now)
        account = self._accounts.setdefault(uid, UserAccount(uid))
        if account.clients >= max_clients:
            return None
        account.clients += 1
        return account

    def reopen(self, uid: int) -> UserAccount:
        """Charge a client that was admitted before a restart, whatever the limit."""
        account = self._accounts.setdefault(uid, UserAccount(uid))
        account.clients += 1
        return account

    def close(self, account: UserAccount, now: float) -> None:
        """Release a client's charge; callers release the other charges.

        The account stays until the rate limit has recovered, so that reconnecting gains nothing.
        """
        account.clients -= 1
        if not account.clients and self._has_full_bucket(account, now):
            del self._accounts[account.uid]

    def _remove_idle(self, now: float) -> None:
        for account in list(self._accounts.values()):
            if not account.clients and self._has_full_bucket(account, now):
                del self._accounts[account.uid]

    def _burst(self) -> float:
        """Return the messages that may be published at once, at least one."""
        return max(1.0, self.rate * BURST)

    def _has_full_bucket(self, account: UserAccount, now: float) -> bool:
        return (now - account.stamp) * self.rate >= self._burst() or not self.rate

    def exceeds_rate(self, account: UserAccount, now: float) -> bool:
        """Whether the rate blocks a message, as it does while it blocks others of the user; otherwise charge it."""
        if not self.rate:
            return False
        return len(account.blocked) > 0 or self.publish(account, now) > 0.0

    def publish(self, account: UserAccount, now: float) -> float:
        """Charge a message to the user's rate; return 0, or the seconds until the next try."""
        rate = self.rate
        if not rate:
            return 0.0
        account.tokens = min(self._burst(), account.tokens + (now - account.stamp) * rate)
        account.stamp = now
        if account.tokens >= 1.0:
            account.tokens -= 1.0
            return 0.0
        return (1.0 - account.tokens) / rate
