"""Clients that get whole datagrams instead of messages: of the tap, and for links. They are accounted for at rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from bccnd.core.wire import frames
from bccnd.core.wire.verdicts import LAST_ACCEPTED, NAMES, NOT_ADDRESSED
from tools.simulate import datagrams
from tools.simulate.clients import Client
from tools.simulate.datagrams import Datagram
from tools.simulate.ledger import Ledger
from tools.simulate.sources import MAY, MUST, NOT

#: the segment of a host beside that of the fleet
SECOND: Final = "veth"
_ACCEPTED: Final = {NAMES[number] for number in (*range(LAST_ACCEPTED + 1), NOT_ADDRESSED)}


class Observer(Client):
    """Gets datagrams by a ``pattern`` of the bus itself, and no messages."""

    def __init__(self, pattern: bytes, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.plain = False
        self.ledger = Ledger(self.name, lambda _what: True)
        #: messages to all programs or to it by name, which it gets too: gaps count those that it loses
        self._addressed = 0
        self.send(frames.subscribe(pattern))
        self.sync(change=True)

    def wants(self, channel: bytes, step: int) -> str:
        return NOT

    def address(self, channel: bytes) -> None:
        """A message was processed that goes to this client whatever it has asked for, if its channel is addressed."""
        self._addressed += channel.startswith(b"!")

    def balance(self) -> None:
        """Check that each came once, and that those which did not come were reported as a gap."""
        # Gaps also count what comes back on the second segment.
        self.ledger.balance(self.ledger.lost if "more" in self.host.settings else self._addressed)
        self._addressed = 0


class Tap(Observer):
    """A client that gets all datagrams with their verdicts."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(frames.TAP, *arguments)

    def judged(self, datagram: Datagram, outcome: str, step: int) -> None:
        """A datagram was processed, and must have been accepted, dropped, or either."""
        certain = self.is_certain(step)
        for sign, wrong in ((b"+", NOT), (b"-", MUST)):
            if outcome != wrong:
                self.ledger.expect(sign + datagram.raw, surely=certain and outcome != MAY)

    def _take_message(self, key: bytes, payload: bytes) -> None:
        if key.startswith(frames.TAP):
            verdict, segment, *_, raw = frames.read_tapped(key, payload)
            # What the host broadcasts on its second segment comes back there too.
            if verdict in _ACCEPTED or segment != SECOND:
                self.ledger.receive((b"+" if verdict in _ACCEPTED else b"-") + raw, ordered=False)


class Gateway(Observer):
    """A gateway with links to other hosts, or with one ``single`` link: it gets what is accepted, for these."""

    def __init__(self, single: bool, carry: Callable[[Gateway, int, bytes], None], *arguments: Any) -> None:
        self.single = single
        self._carry = carry
        #: what the host has broadcast since the last rest
        self._sent: set[bytes] = set()
        super().__init__(frames.LINK_HERE if single else frames.LINK, *arguments)

    def judged(self, datagram: Datagram, outcome: str, step: int, *, fresh: bool, linked: bool) -> None:
        """A datagram was processed; one that has waited too long, or came by the single link, does not go to links."""
        if outcome != NOT and not (linked and self.single):
            self.ledger.expect(datagram.raw, surely=fresh and outcome == MUST and self.is_certain(step))

    def sent(self, datagram: Datagram, step: int) -> None:
        """The host has broadcast a datagram of its own for the first time: it goes to links too, once."""
        if datagram.raw not in self._sent:
            self._sent.add(datagram.raw)
            self.ledger.expect(datagram.raw, surely=self.is_certain(step))

    def _take_message(self, key: bytes, payload: bytes) -> None:
        if key == frames.LINK:
            origin, raw = frames.read_forwarded(payload)
            if not origin and datagrams.read(raw).src.startswith(self.host.name.encode() + b"/"):
                self.sent(datagrams.read(raw), self.changed)  # it may not have been broadcast
            self.ledger.receive(raw, ordered=False)
            self._carry(self, origin, raw)
