"""What the daemon says: to the journal with fields and ids, or on standard error, readable for people.

Law: what can happen once per datagram or per client is said once, then counted, and the count is said at most once a
minute. A message says what happened and what to do about it; where something was dropped, by the name that `drops`
and the metrics have for it. Saying it never waits for who listens: what does not go
out is counted, and that is said before the next that does. Nobody draws on an operator's terminal: of what strangers
can choose only what can be printed comes through. The last lines stay in memory, so many and so long.
"""

from __future__ import annotations

import logging
import math
import sys
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Final, NamedTuple, NotRequired, TypedDict

from bccnd.net.events import EVENTS
from bccnd.net.log_output import Output, ToJournal, ToStream, Value, is_journal, of_event
from bccnd.net.peer import Peer

#: seconds between two lines about the same thing
QUIET: Final = 60.0
#: lines about one event within that time, whomever they are about; the rest is counted
MAX_LINES: Final = 50
#: things remembered; more than the daemon has to say, so that this cap only bounds a mistake
MAX_THINGS: Final = 4096
#: lines that stay in memory, and characters of each: a few hundred kB at the worst
RECENT: Final = 100
MAX_RECENT: Final = 2000
_NEVER: Final = -math.inf

#: lines of this process that nobody has seen: those that were not taken, and those beyond `MAX_LINES`
lines_dropped: Final = {"lines_lost": 0, "lines_left_out": 0}

logger = logging.getLogger("bccnd")


class Words(NamedTuple):
    """What there is to say about an event, made only where it is said."""

    text: str
    remedy: str
    fields: Mapping[str, Value]


def words(text: str, /, *, remedy: str = "", **fields: Value) -> Words:
    """What is given to `Limited.say` where making it takes long."""
    return Words(text, remedy, fields)


def say(event: str, text: str, /, *, remedy: str = "", trace: bool = False, **fields: Value) -> None:
    """Say that something has happened. ``event`` is one of `events.EVENTS`, ``remedy`` what can be done about it;
    ``trace`` adds where the exception comes from that is being handled. The journal gets each field as BCCND_<NAME>."""
    _say(event, text, "", remedy, trace, fields)


def _say(event: str, text: str, more: str, remedy: str, trace: bool, fields: Mapping[str, Value]) -> None:
    known = EVENTS.get(event)
    # A text that lists several faults has a remedy behind each of them.
    drop = str(fields.get("drop", ""))
    if drop and f"({drop})" not in text:
        text = f"{text} ({drop})"
    told = f"{text}{more}" if not remedy or "\n  remedy: " in text else f"{text}{more}. Remedy: {remedy}"
    level = known.level if known is not None else logging.WARNING
    part = logger.getChild(known.part) if known is not None else logger
    part.log(level, "%s", told, exc_info=trace, extra={"event": event, "remedy": remedy, "fields": fields})


class Who(TypedDict):
    """The fields that tell of a program of this host."""

    uid: int
    pid: int
    program: bytes
    identity: NotRequired[bytes]


def who(peer: Peer, identity: bytes = b"") -> Who:
    """What there is to tell of a program; its ``identity`` once it has one."""
    fields = Who(uid=peer.uid, pid=peer.pid, program=peer.program)
    if identity:
        fields["identity"] = identity
    return fields


def printable(text: str) -> str:
    """Text without anything that a terminal could take for an order, or a reader for another line's beginning."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in "\n\t" else _escaped(one) for one in text)


def _escaped(one: str) -> str:
    return one.encode("unicode_escape").decode("ascii")


class Limited:
    """Says a thing at once, and then at most once every ``quiet`` seconds with the number of times since."""

    def __init__(self, quiet: float = QUIET, now: Callable[[], float] = time.monotonic) -> None:
        self._quiet = quiet
        self._now = now
        self._seen: dict[Hashable, tuple[float, int]] = {}
        #: of each event: since when lines are counted, how many there were, and how many were too many
        self._lines: dict[str, tuple[float, int, int]] = {}
        #: of each counter: when it was last told of, and what it was then
        self._told: dict[Hashable, tuple[float, int]] = {}

    def say(
        self,
        thing: Hashable,
        event: str,
        text: str | Callable[[], Words],
        /,
        *,
        remedy: str = "",
        trace: bool = False,
        **fields: Value,
    ) -> None:
        """As `log.say`, within limits. ``thing`` identifies what this is about: an event and who caused it. A ``text``
        that takes long to make is made, with all the rest, only where it is said."""
        due = self._due(thing, event)
        if due is None:
            return
        again, others = due
        made = Words(text, remedy, fields) if isinstance(text, str) else text()
        _say(event, made.text, _more(again, others), made.remedy, trace, {"count": again + 1, **made.fields})

    def bug(self, text: str, /, **fields: Value) -> None:
        """Say that what is being handled is a bug of ours; each place in the code is a thing of its own."""
        remedy = "report it, with the lines that follow here"
        self.say(_place(), "internal_error", f"{text}; please report it", remedy=remedy, trace=True, **fields)

    def warn(self, thing: Hashable, message: str | Callable[[], str]) -> None:
        """Say a thing that is no event."""
        due = self._due(thing, "")
        if due is not None:
            text = message if isinstance(message, str) else message()
            logger.warning("%s%s", text, _more(*due))

    def grown(self, thing: Hashable, count: int) -> int:
        """How much a counter has grown since that was last said, where it is time to say so; else 0."""
        now = self._now()
        since, told = self._told.get(thing, (_NEVER, 0))
        if count == told or now - since < self._quiet:
            return 0
        self._told[thing] = (now, count)
        return count - told if count > told else count  # one that is less than it was has begun anew

    def _due(self, thing: Hashable, event: str) -> tuple[int, int] | None:
        """How often this thing, and how often others of the same event, were not said; None while it is too early."""
        now = self._now()
        since, held_back = self._seen.get(thing, (_NEVER, 0))
        if now - since < self._quiet:
            self._seen[thing] = (since, held_back + 1)
            return None
        began, lines, others = self._lines.get(event, (now, 0, 0))
        if now - began >= self._quiet:
            began, lines = now, 0
        if lines >= MAX_LINES:
            self._lines[event] = (began, lines, others + 1)
            lines_dropped["lines_left_out"] += 1
            return None
        self._lines[event] = (began, lines + 1, 0)
        if len(self._seen) >= MAX_THINGS:
            self._seen.clear()
        self._seen[thing] = (now, 0)
        return held_back, others


def _more(again: int, others: int) -> str:
    text = f" ({again} more times in the meantime)" if again else ""
    return f"{text} ({others} lines about others were left out)" if others else text


def _place() -> Hashable:
    """Where the exception was raised that is being handled."""
    error = sys.exception()
    trace = error.__traceback__ if error is not None else None
    place: Hashable = None
    while trace is not None:
        place = trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next
    return "bug", place


# -- who listens


class _Handler(logging.Handler):
    """Gives lines to who listens, and counts those that were not taken."""

    def __init__(self, out: Output) -> None:
        super().__init__()
        self._out = out
        self._lost = 0
        self._plain = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        if self._lost and not self._put(_of_lines_lost(self._lost)):
            self._lose(self._lost + 1)
            return
        self._lost = 0
        if not self._put(record):
            self._lose(1)

    def _lose(self, count: int) -> None:
        self._lost = count
        lines_dropped["lines_lost"] += 1

    def _put(self, record: logging.LogRecord) -> bool:
        return self._out.put(record, printable(self._plain.format(record)))

    def settle(self, patience: float) -> None:
        self._out.settle(patience)

    def flush(self) -> None:
        self._out.flush()


class Line(NamedTuple):
    """A line that was said: when (wall clock), how grave (of logging's), which event, what, and what to do."""

    when: float
    level: int
    event: str
    text: str
    remedy: str


class Recent(logging.Handler):
    """Keeps the last lines in memory, for who looks at the daemon and not at its log; the latest first."""

    def __init__(self, lines: int = RECENT) -> None:
        super().__init__(logging.INFO)
        self._lines: deque[Line] = deque(maxlen=lines)

    def emit(self, record: logging.LogRecord) -> None:
        event, remedy, _ = of_event(record)
        text = record.getMessage()
        if remedy:
            text = text.removesuffix(f". Remedy: {remedy}")
        self._lines.append(Line(record.created, record.levelno, event, _short(text), _short(remedy)))

    def __iter__(self) -> Iterator[Line]:
        return reversed(self._lines)

    def close(self) -> None:
        logger.removeHandler(self)
        super().close()


def _short(text: str) -> str:
    return printable(text if len(text) <= MAX_RECENT else text[:MAX_RECENT] + "...")


def keep_recent() -> Recent:
    """From now on keep the last lines, until `Recent.close`."""
    recent = Recent()
    logger.addHandler(recent)
    return recent


def _of_lines_lost(count: int) -> logging.LogRecord:
    event = EVENTS["lines_lost"]
    remedy = "see that whoever takes this log reads it, and has room for it (systemctl status systemd-journald)"
    text = f"{count} lines of this log are missing here, because nobody took them (lines_lost). Remedy: {remedy}"
    record = logging.LogRecord(logger.name, event.level, __file__, 0, text, None, None)
    record.event, record.remedy, record.fields = event.name, remedy, {"count": count, "drop": "lines_lost"}
    return record


def setup(program: str = "bccnd", *, stderr: int = 2) -> None:
    """Send the log of a daemon to the journal if that is where the descriptor ``stderr`` leads and it can be reached;
    else to ``stderr``."""
    out: Output
    trouble = ""
    ours = is_journal(stderr)
    try:
        out = ToJournal(program) if ours else ToStream(program, stderr, prefixed=False)
    except (ImportError, OSError) as error:
        trouble = f"cannot reach the journal: {error}; it gets this log as plain lines"
        out = ToStream(program, stderr, prefixed=True)
    logger.addHandler(_Handler(out))
    logger.setLevel(logging.INFO)
    logger.propagate = False
    if trouble:
        logger.warning("%s", trouble)


def flush() -> None:
    """Bring out what other threads have logged; for the loop of a program that has some."""
    for handler in logger.handlers:
        handler.flush()


def settle(patience: float = 1.0) -> None:
    """Before the end of a process that has said why it ends: let who listens see who it was."""
    for handler in logger.handlers:
        if isinstance(handler, _Handler):
            handler.settle(patience)
