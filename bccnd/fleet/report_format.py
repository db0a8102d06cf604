"""Reads and writes reports: the text in which a daemon tells the segment what it has sent and received.

Lines of ASCII, each ended by a newline, fields separated by one blank. Unknown lines and further fields are ignored, so
that later versions can add some. Modelled on the sender and receiver reports of RTP (RFC 3550, section 6).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from bccnd.core.frames import REPORT

#: begins the channel of a report; the host follows
CHANNEL: Final = REPORT
#: the format written here
FORMAT: Final = "1"
#: lines read of one datagram: more than fit in a datagram that is sent
MAX_LINES: Final = 256
_MAX_NUMBER: Final = (1 << 64) - 1
_MAX_NAME: Final = 128


class BadReport(ValueError):
    """A report that is not believed; ``reason`` is one of `REASONS`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


#: why a report is not believed: it has no or another form; its channel and its sender differ; its numbers cannot be;
#: a later one has arrived before it; its host sends too many
REASONS: Final = ("bad_format", "wrong_sender", "impossible", "outdated", "too_many")


class SentRun(NamedTuple):
    """The numbers of a source from ``first`` up to, not including, ``next``: each was broadcast."""

    src: str
    first: int
    next: int


class HeardHost(NamedTuple):
    """Counters of a sending host since a time (Unix, milliseconds)."""

    host: str
    since_ms: int
    received: int
    lost: int
    late: int
    duplicate: int


class Report(NamedTuple):
    """One datagram of a report: number ``part`` of ``parts``. ``keys`` are an algorithm and fingerprints, the signing
    one first; None if this datagram names none."""

    version: str
    interval_ms: int
    part: int
    parts: int
    keys: tuple[str, tuple[str, ...]] | None = None
    sent: Sequence[SentRun] = ()
    heard: Sequence[HeardHost] = ()


def head_line(version: str, interval_ms: int, part: int, parts: int) -> bytes:
    return f"report {FORMAT} {version} {interval_ms} {part} {parts}\n".encode("ascii")


def keys_line(algorithm: str, fingerprints: Sequence[str]) -> bytes:
    return f"keys {algorithm} {','.join(fingerprints)}\n".encode("ascii")


def sent_line(run: SentRun) -> bytes:
    return f"sent {run.src} {run.first} {run.next}\n".encode("ascii")


def heard_line(heard: HeardHost) -> bytes:
    return (
        f"heard {heard.host} {heard.since_ms} {heard.received} {heard.lost} {heard.late} {heard.duplicate}\n"
    ).encode("ascii")


def reporting_host(src: bytes, chan: bytes) -> str:
    """Return the host whose report a datagram is. Raises BadReport: only its daemon may report for a host."""
    host = chan[len(CHANNEL) :]
    if src.split(b"/")[:2] != [host, b"bccnd"]:
        raise BadReport("wrong_sender")
    return host.decode("ascii")


def read_report(payload: bytes) -> Report:
    """Read one datagram of a report. Raises BadReport."""
    try:
        lines = payload.decode("ascii").split("\n", MAX_LINES)
        report = _read_head(lines[0].split(" "))
        sent: list[SentRun] = []
        heard: list[HeardHost] = []
        keys = None
        for line in lines[1:]:
            word, *fields = line.split(" ")
            if word == "heard":
                host, *numbers = fields[:6]
                heard.append(HeardHost(_name(host), *_numbers(numbers, 5)))
            elif word == "sent":
                src, *numbers = fields[:3]
                sent.append(SentRun(_name(src), *_numbers(numbers, 2)))
            elif word == "keys":
                algorithm, *names = fields[:2]
                keys = _name(algorithm), tuple(_name(one) for one in names[0].split(",")) if names and names[0] else ()
    except (UnicodeDecodeError, ValueError, TypeError, IndexError):
        raise BadReport("bad_format") from None
    return report._replace(sent=sent, heard=heard, keys=keys)


def _read_head(fields: list[str]) -> Report:
    word, number, version, *numbers = fields[:6]
    interval, part, parts = _numbers(numbers, 3)
    if word != "report" or number != FORMAT or not 1 <= part <= parts:
        raise ValueError
    return Report(_name(version), interval, part, parts)


def _name(text: str) -> str:
    if not text or len(text) > _MAX_NAME or not text.isprintable():
        raise ValueError
    return text


def _numbers(fields: Sequence[str], count: int) -> list[int]:
    # All at once: for each alone it would take half of the time that a report takes.
    if len(fields) != count or "" in fields or not "".join(fields).isdigit():
        raise ValueError
    numbers = [int(field) for field in fields]
    if max(numbers) > _MAX_NUMBER:
        raise ValueError
    return numbers
