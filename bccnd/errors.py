"""Every error that bccnd raises on purpose, in one family.

Law: whatever a stranger or an operator can cause has a class here and carries a reason. Anything else that
escapes from a part is a bug.
"""

from __future__ import annotations

from dataclasses import dataclass


class BccndError(Exception):
    """Root of the family. ``reason`` is one word that logs, metrics and clients can rely on."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail


class BadDatagram(BccndError):
    """Bytes from the segment that are no acceptable datagram; ``reason`` is the name of the verdict."""


class BadFrame(BccndError):
    """A packet from a local client that is no frame of the bus."""


class BadMessage(BccndError):
    """A local message that cannot become a datagram; ``reason`` goes back to its publisher."""


class BusError(BccndError):
    """A client program cannot reach the daemon, or the daemon refused what it asked for."""


class RequestTimeout(BusError):
    """The daemon has not answered a request in time (``no_answer``)."""


class ConnectionLost(BusError):
    """The connection to the daemon has ended, or the daemon did not come back in time (``connection_lost``)."""


class EndpointError(BccndError):
    """A program that speaks on the segment itself cannot open its socket, or cannot send what it was asked to."""


class BadAddress(BccndError):
    """Text that names no socket of the local bus."""


class BadKey(BccndError):
    """A file with a key that cannot be used; ``remedy`` says what to do about it."""

    def __init__(self, detail: str, remedy: str) -> None:
        super().__init__("bad_key", detail)
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.detail}\n  remedy: {self.remedy}"


class StartError(BccndError):
    """What is needed to start cannot be had; ``remedy`` says what the operator can do about it."""

    def __init__(self, reason: str, detail: str, remedy: str) -> None:
        super().__init__(reason, detail)
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.detail}\n  remedy: {self.remedy}"


@dataclass(frozen=True)
class Fault:
    """One thing wrong with a configuration file. ``line`` is 0 where no line can be named."""

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
    """A configuration with one or more faults, all of them listed."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__("bad_configuration")
        self.faults = faults

    def __str__(self) -> str:
        return "\n".join(str(fault) for fault in self.faults)


class JournalError(BccndError):
    """A journal or a capture that cannot be read or written; ``remedy`` says what can be done about it."""

    def __init__(self, reason: str, detail: str, remedy: str) -> None:
        super().__init__(reason, detail)
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.detail}\n  remedy: {self.remedy}"


class PipelineError(JournalError):
    """Tables that cannot be made: no Spark, no journal, no place to write to."""
