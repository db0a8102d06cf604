"""The errors that bccnd raises on purpose.

Whatever a sender, a client or an operator can cause has a class here and a reason; any other exception is a bug.
"""

from __future__ import annotations

from dataclasses import dataclass


class BccndError(Exception):
    """Base class. ``reason`` is a fixed word for logs, metrics and clients."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail


class BadDatagram(BccndError):
    """Invalid bytes from a segment; ``reason`` is the name of the verdict."""


class BadFrame(BccndError):
    """A packet from a local client that is not a frame of the bus."""


class BadMessage(BccndError):
    """A local message that cannot become a datagram; its publisher gets ``reason``."""


class BusError(BccndError):
    """A client program cannot reach the daemon, or the daemon refused its request."""


class RequestTimeout(BusError):
    """The daemon or program did not answer a request in time (``no_answer``)."""


class ConnectionLost(BusError):
    """The connection to the daemon has ended, or the daemon did not come back in time (``connection_lost``)."""


class EndpointError(BccndError):
    """An endpoint cannot open its socket or cannot send."""


class BadAddress(BccndError):
    """Text that is not an address: of a bus socket, of a host, of a link."""


class BadKey(BccndError):
    """A key file that cannot be used; ``remedy`` says what to do."""

    def __init__(self, detail: str, remedy: str) -> None:
        super().__init__("bad_key", detail)
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.detail}\n  remedy: {self.remedy}"


class StartError(BccndError):
    """Something needed for the start is not available; ``remedy`` says what to do."""

    def __init__(self, reason: str, detail: str, remedy: str) -> None:
        super().__init__(reason, detail)
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.detail}\n  remedy: {self.remedy}"


@dataclass(frozen=True)
class Fault:
    """A fault in a configuration file. ``line`` is 0 where it concerns no line."""

    file: str
    line: int
    path: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        what = f"{self.path}: {self.reason}" if self.path else self.reason
        return f"{where}: {what}\n  remedy: {self.remedy}"


class ConfigError(BccndError):
    """A configuration with faults, all of which are listed."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__("bad_configuration")
        self.faults = faults

    def __str__(self) -> str:
        return "\n".join(str(fault) for fault in self.faults)


class JournalError(BccndError):
    """A journal or a capture cannot be read or written; ``remedy`` says what to do."""

    def __init__(self, reason: str, detail: str, remedy: str) -> None:
        super().__init__(reason, detail)
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.detail}\n  remedy: {self.remedy}"


class PipelineError(JournalError):
    """Tables cannot be built: no Spark, no journal, or no place to write to."""
