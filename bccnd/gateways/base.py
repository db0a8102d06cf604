"""What a gateway is to the process that runs it: a client of the bus in a process of its own, so that its faults stay
its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar

from bccnd.core.tally import TALLY, Tally, in_fields, in_words
from bccnd.errors import StartError
from bccnd.gateways.report import Peer, Status

__all__ = [
    "REPORT",
    "TAKEOVER",
    "Gateway",
    "Hourly",
    "Peer",
    "Status",
    "Supervisor",
    "Voice",
    "listen_patiently",
    "say_bug",
    "say_dropped",
]

#: seconds between two reports of a gateway to the daemon
REPORT: Final = 1.0
#: seconds that the gateway before this one may take to end, and between two attempts to get its address
TAKEOVER: Final = 5.0
_AGAIN: Final = 0.05

_Listener = TypeVar("_Listener")


class Voice(Protocol):
    """How a gateway says what has happened, so seldom that no stranger can fill a log: `bccnd.net.log.Limited`."""

    def say(
        self, thing: Hashable, event: str, text: str, /, *, remedy: str = "", trace: bool = False, **fields: Any
    ) -> None: ...

    def bug(self, text: str, /, **fields: Any) -> None: ...

    def grown(self, thing: Hashable, count: int) -> int: ...


def say_dropped(voice: Voice, status: Status, known: Mapping[str, tuple[str, str]]) -> None:
    """Say what has been dropped since that was last said, for reasons that are ``known``: what it means, what helps."""
    for reason, (text, remedy) in known.items():
        count = voice.grown(reason, status.dropped.get(reason, 0))
        if count:
            thing = ("dropped", reason)
            said = f"{count} {text}"
            voice.say(
                thing,
                "gateway_dropped",
                said,
                remedy=remedy,
                gateway=status.gateway,
                reason=reason,
                drop=reason,
                count=count,
            )


class Hourly:
    """Says once an hour, and at the end, all that was dropped since, if anything was. Times are seconds of a clock that
    only goes on."""

    def __init__(self, voice: Voice, status: Status, now: float) -> None:
        self._voice = voice
        self._status = status
        self._tally = Tally()
        self._since = "since the start"
        self._due = now + TALLY

    def look(self, now: float) -> None:
        if now >= self._due:
            self._due = now + TALLY
            self._tell("in the last hour")

    def end(self) -> None:
        self._tell(self._since)

    def _tell(self, since: str) -> None:
        status = self._status
        grown = self._tally.grown(("", reason, count) for reason, count in status.dropped.items())
        if grown:
            self._since = "since that was last said"
            text = f"{status.gateway}: dropped {since}: {in_words(grown)}"
            # At the end it may be soon after the last one.
            self._voice.say(("tally", since), "tally", text, gateway=status.gateway, drops=in_fields(grown))


def say_bug(voice: Voice, name: str, context: Mapping[str, Any]) -> None:
    """Say that something has failed in an event loop that should not have; the rest goes on. ``context`` is what the
    loop tells its exception handler."""
    error = context.get("exception")
    try:
        raise error if isinstance(error, BaseException) else RuntimeError(str(context.get("message")))
    except Exception:  # noqa: BLE001 - for the log to have it at hand
        voice.bug(f"the gateway {name} has met a bug", gateway=name)


class Supervisor(Protocol):
    """What a gateway reports its start to: `bccnd.net.systemd.Manager`."""

    def ready(self, status: str) -> None: ...

    def status(self, text: str) -> None: ...


async def listen_patiently(
    listen: Callable[[], _Listener], patience: float, stop: asyncio.Event, supervisor: Supervisor | None
) -> _Listener:
    """Call ``listen`` until it succeeds. An address that is taken is waited for: the gateway before this one may be
    about to end. Raises StartError."""
    deadline = time.monotonic() + patience
    while True:
        try:
            return listen()
        except StartError as error:
            if error.reason != "address_taken" or time.monotonic() >= deadline or stop.is_set():
                raise
            if supervisor is not None:
                supervisor.status(f"waiting: {error.detail}")
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), _AGAIN)


class Gateway(Protocol):
    """One way to another world."""

    async def run(self, stop: asyncio.Event, supervisor: Supervisor | None = None) -> None:
        """Serve until ``stop`` is set, and tell the supervisor as soon as all addresses are listened at; whatever goes
        wrong meanwhile is said and counted. Raises StartError where it cannot even begin: address_taken, cannot_listen,
        a certificate that cannot be read."""
