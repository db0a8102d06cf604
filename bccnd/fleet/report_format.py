"""Reads and writes reports: the text in which a daemon tells the segment what it has sent and received.

Lines of ASCII, each ended by a newline, fields separated by one blank. Unknown lines and further fields are ignored, so
that later versions can add some. Modelled on the sender and receiver reports of RTP (RFC 3550, section 6).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from bccnd.core.wire.frames import REPORT

#: begins the channel of a report; the host follows
CHANNEL: Final = REPORT
#: the format written here
FORMAT: Final = "1"
#: lines read of one datagram: more than fit in a datagram that is sent
MAX_LINES: Final = 256
_MAX_NUMBER: Final = (1 << 64) - 1
_MAX_NAME: Final = 128
#: a name, a seq, and a count or a time, each followed by a blank or the end of the line
_NAME: Final = rf"[!-~]{{1,{_MAX_NAME}}}+"
_SEQ: Final = r" [0-9]{1,20}+"
_COUNT: Final = r" [0-9]{1,19}+"
#: all lines of a kind are found at once, which takes a third of the time of one after the other
_HEARD: Final = re.compile(rf"\nheard ({_NAME}{5 * _COUNT})(?![^ \n])")
_SENT: Final = re.compile(rf"\nsent ({_NAME}{2 * _SEQ})(?![^ \n])")
_KEYS: Final = re.compile(rf"\nkeys ({_NAME}(?: [!-~]*+)?)(?![^ \n])")


class BadReport(ValueError):
    """A report that is not believed; ``reason`` is one of `REASONS`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


#: why a report is not believed: it has no or another form; its channel or one of its sources is of another host than
#: its sender; its numbers cannot be; a later one has arrived before it; its host sends too many
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


class HeardHosts(NamedTuple):
    """The same of several hosts, a list for each field: there may be thousands of lines a second."""

    hosts: Sequence[str] = ()
    since_ms: Sequence[int] = ()
    received: Sequence[int] = ()
    lost: Sequence[int] = ()
    late: Sequence[int] = ()
    duplicate: Sequence[int] = ()

    @property
    def counts(self) -> tuple[Sequence[int], ...]:
        return self[2:]

    @property
    def rows(self) -> list[HeardHost]:
        return list(map(HeardHost._make, zip(*self, strict=True)))


class Report(NamedTuple):
    """One datagram of a report: number ``part`` of ``parts``. ``keys`` are an algorithm and fingerprints, the signing
    one first; None if this datagram names none."""

    version: str
    interval_ms: int
    part: int
    parts: int
    keys: tuple[str, tuple[str, ...]] | None = None
    sent: Sequence[SentRun] = ()
    heard: HeardHosts = HeardHosts()


def heard_hosts(rows: Iterable[HeardHost]) -> HeardHosts:
    """Put rows into lists."""
    return HeardHosts(*zip(*rows, strict=True))


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


def read_report(host: str, payload: bytes) -> Report:
    """Read one datagram of the report of a host, which tells the numbers of its own sources only. Raises BadReport."""
    try:
        text = payload.decode("ascii")
        if text.count("\n") > MAX_LINES:
            raise ValueError
        version, interval, part, parts = _read_head(text[: text.index("\n")].split(" "))
        sent = list(map(SentRun._make, zip(*_columns(_SENT, "sent", text, 3), strict=True)))
        if any(run.first > _MAX_NUMBER or run.next > _MAX_NUMBER for run in sent):
            raise ValueError
        heard = HeardHosts(*_columns(_HEARD, "heard", text, 6))
        keys = None
        for line in _find_all(_KEYS, "keys", text):
            algorithm, _, names = line.partition(" ")
            keys = algorithm, tuple(_name(one) for one in names.split(",")) if names else ()
    except ValueError:
        raise BadReport("bad_format") from None
    if any(run.src.partition("/")[0] != host for run in sent):
        raise BadReport("wrong_sender")
    return Report(version, interval, part, parts, keys, sent, heard)


def _find_all(pattern: re.Pattern[str], word: str, text: str) -> list[str]:
    """Return the fields of each line that begins with a word. Raises ValueError if one is not as it should be."""
    found: list[str] = pattern.findall(text)
    if len(found) != text.count(f"\n{word} "):
        raise ValueError
    return found


def _columns(pattern: re.Pattern[str], word: str, text: str, width: int) -> list[Any]:
    """Return the names of all lines that begin with a word, and a list for each number behind it."""
    found = _find_all(pattern, word, text)
    if not found:
        return []
    fields = " ".join(found).split(" ")
    return [fields[::width], *(_to_numbers(fields[place::width]) for place in range(1, width))]


def _to_numbers(field: Sequence[str]) -> list[int]:
    # Most hosts have lost as much of each sender: nothing.
    return [int(field[0])] * len(field) if len(set(field)) == 1 else list(map(int, field))


def _read_head(fields: list[str]) -> tuple[str, int, int, int]:
    word, number, version, *numbers = fields[:6]
    interval, part, parts = _numbers(numbers, 3)
    if word != "report" or number != FORMAT or not 1 <= part <= parts:
        raise ValueError
    return _name(version), interval, part, parts


def _name(text: str) -> str:
    if not text or len(text) > _MAX_NAME or not text.isprintable():
        raise ValueError
    return text


def _numbers(fields: Sequence[str], count: int) -> list[int]:
    if len(fields) != count or not all(field.isdigit() for field in fields):
        raise ValueError
    numbers = [int(field) for field in fields]
    if max(numbers) > _MAX_NUMBER:
        raise ValueError
    return numbers
