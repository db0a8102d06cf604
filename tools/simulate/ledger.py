"""What one client has to get: expected messages, those it got, and those it was told that it lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tools.simulate.violation import Violation


class Ledger:
    """The account of a client ``name``.

    Messages are tokens. A token is expected once it is known what became of it; before that, ``may_come`` says whether
    it may reach this client already.
    """

    def __init__(self, name: str, may_come: Callable[[bytes], bool]) -> None:
        self._name = name
        self._may_come = may_come
        self._must: Counter[bytes] = Counter()
        self._may: Counter[bytes] = Counter()
        self._early: Counter[bytes] = Counter()
        #: messages that came and were only allowed to
        self._taken: Counter[bytes] = Counter()
        #: messages lost, as gaps have told, since the account was last balanced
        self.lost = 0
        self.gaps = 0
        #: messages that crashes may have lost, crashes, and how many of these the client was told of
        self._held = 0
        self._crashes = self._told = 0
        self._order: dict[bytes, int] = {}
        #: the highest number of a sender that came before a message of which it is not known yet whether it must come
        self._before: dict[bytes, int] = {}

    def expect(self, token: bytes, *, surely: bool) -> None:
        """A message for this client was processed; if not ``surely`` it may also have been for others only."""
        if self._early[token] > 0:
            self._early[token] -= 1
            if not self._early[token]:
                del self._early[token]
            before = self._before.pop(token, None)
            if not surely:
                self._taken[token] += 1
            elif before is not None:
                self._check_order(token, before)
        elif surely and self._taken[token]:
            # What came as one that may come was this one.
            self._taken[token] -= 1
            self._may[token] += 1
        elif surely:
            self._must[token] += 1
        else:
            self._may[token] += 1

    def not_expected(self, token: bytes, why: str) -> None:
        """A message was processed that was not for this client; ``why`` says so."""
        if self._early.get(token, 0) > 0:
            raise Violation(f"{self._name} got {token!r}, although {why}")

    def receive(self, token: bytes, *, ordered: bool) -> None:
        """The client got a message; ``ordered`` if those of one sender must come in order."""
        certain = False
        for expected in (self._must, self._may):
            if expected.get(token, 0) > 0:
                expected[token] -= 1
                if not expected[token]:
                    del expected[token]
                self._taken[token] += expected is self._may
                certain = expected is self._must
                break
        else:
            if not self._may_come(token):
                raise Violation(f"{self._name} got {token!r} a second time, or it was for others")
            self._early[token] += 1
        if ordered:
            sender, _, number = token.rpartition(b".")
            before = self._order.get(sender, -1)
            self._order[sender] = max(before, int(number))
            if certain:
                self._check_order(token, before)
            elif token in self._early:
                self._before[token] = before

    def _check_order(self, token: bytes, before: int) -> None:
        """Check that a message that must come has a higher number than ``before``, the highest that came earlier."""
        if int(token.rpartition(b".")[2]) <= before:
            raise Violation(f"{self._name} got {token!r} behind number {before} of this sender")

    def receive_any(self, token: bytes) -> None:
        """The client got a message that is not accounted for one by one."""
        if self._may[token]:
            self._may[token] -= 1

    def lose(self, count: int) -> None:
        """The client was told of a gap; 0 tells of a crash."""
        self.lost += count
        self.gaps += count
        self._told += not count
        if self._told > self._crashes:
            raise Violation(f"{self._name} was told of a crash, and there was none")

    def crash(self, held: int) -> None:
        """The daemon has crashed: so many messages for this client are lost at most, and the next one has to tell."""
        self._held += held
        self._crashes += 1

    @property
    def waiting(self) -> int:
        """Messages that must still come."""
        return sum(self._must.values())

    def balance(self, more: int = 0) -> None:
        """Check that nothing came too often, and that what has not come was told, or held by a daemon that has crashed:
        nothing waits for this client any more, and it might have got so many ``more``. Begins anew."""
        for token, count in self._early.items():
            if count:
                raise Violation(f"{self._name} got {token!r} {count} times more than it was sent")
        missing, perhaps = sum(self._must.values()), sum(self._may.values()) + more
        if not missing - self._held <= self.lost <= missing + perhaps:
            raise Violation(
                f"{self._name} has not got {missing} that it should have and {perhaps} that it could have, among them "
                f"{next(iter(self._must), b'')!r}, and was told of {self.lost}; crashes have lost {self._held} at most"
            )
        if self._crashes and not self._told:
            raise Violation(f"{self._name} was not told of a crash")
        self.lost = self._held = self._crashes = self._told = 0
        self._must.clear()
        self._may.clear()
        self._taken.clear()
