"""`bccn tap` and `bccn trace`: what became of datagrams, and what would become of one.

Law: a datagram is shown as it came in, whoever made it; what cannot be read is shown as bytes, and never guessed at.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, NoReturn

import click
from click.core import ParameterSource

from bccnd.cli.show import (
    cut,
    explain,
    fail,
    follow,
    listing,
    payload_fields,
    print_table,
    printed,
    the_bus,
    visible,
    visible_bytes,
    wants_colour,
)
from bccnd.client.bus import Connection
from bccnd.client.message import Message, to_bytes
from bccnd.core import bccn1, frames, targets
from bccnd.core.verdicts import LAST_ACCEPTED, NAMES
from bccnd.errors import BadDatagram, BadFrame, BusError

#: kinds of verdicts, and what they are shown in
KINDS: Final = {
    "delivered": ("accepted", "reordered", "restart"),
    "dropped": ("duplicate", "stale", "replayed", "not_addressed"),
    "integrity": ("integrity_missing", "integrity_unknown", "integrity_failed"),
    "bad": (
        *("oversize", "bad_envelope", "length_mismatch", "unsupported_version", "bad_body", "bad_src", "bad_seq"),
        *("bad_channel", "bad_target", "internal_error"),
    ),
    "looped": ("looped",),
}
KIND_OF: Final = {name: kind for kind, names in KINDS.items() for name in names}
_STYLES: Final[dict[str, dict[str, Any]]] = {
    "delivered": {"fg": "green"},
    "dropped": {"fg": "yellow"},
    "integrity": {"fg": "red"},
    "bad": {"fg": "red"},
    "looped": {"dim": True},
}
#: seconds that a message is waited for at most
_LONGEST: Final = 3600.0
#: characters of a datagram that cannot be read, where no terminal says how many fit
_START: Final = 200


# -- what the tap tells


class Tapped(NamedTuple):
    """A datagram from the tap. ``magic`` and ``algo`` are empty where there is no envelope, ``body`` (src, seq, chan,
    payload) None where there is none that can be read."""

    verdict: str
    segment: str
    epoch: int
    received_ns: int
    peer: str
    raw: bytes
    magic: bytes
    algo: bytes
    body: tuple[bytes, int, bytes, bytes] | None


def take_apart(key: bytes, payload: bytes) -> Tapped:
    """Read a message of the tap. Raises BadFrame."""
    verdict, segment, epoch, received_ns, peer, raw = frames.read_tapped(key, payload)
    magic = algo = b""
    body = None
    try:
        magic, check, inside = bccn1.split_envelope(raw)
        algo = check.partition(b"=")[0]
        if magic == bccn1.MAGIC:
            body = bccn1.read_body(inside)
    except BadDatagram:
        pass
    return Tapped(verdict, segment, epoch, received_ns, peer, raw, magic, algo, body)


class Wanted:
    """Which datagrams to show: of one of some senders, on one of some channels, of one segment; empty means any."""

    def __init__(self, sources: Sequence[str] = (), channels: Sequence[str] = (), segment: str | None = None) -> None:
        self._sources = [to_bytes(prefix).rstrip(b"/") for prefix in sources]
        self._segment = segment
        self._matches: Callable[[bytes], object] | None = None
        if channels:
            from bccnd.core.pattern_tree import PatternTree  # most commands need no patterns
            from bccnd.core.patterns import DIALECTS

            tree: PatternTree[None] = PatternTree(DIALECTS["path"])
            for pattern in channels:
                tree.add(tree.compile(to_bytes(pattern)), None)
            self._matches = tree.match

    def __call__(self, tapped: Tapped) -> bool:
        if self._segment is not None and tapped.segment != self._segment:
            return False
        if tapped.body is None:
            return not self._sources and self._matches is None
        src, _, chan, _ = tapped.body
        return (
            not self._sources or any(src == prefix or src.startswith(prefix + b"/") for prefix in self._sources)
        ) and (self._matches is None or bool(self._matches(chan)))


@dataclass(frozen=True)
class Line:
    """How a datagram is shown on a line. ``width`` gives what there is room for, if there is a limit; ``pad`` is what
    verdicts are filled up to."""

    colour: bool = False
    width: Callable[[], int] | None = None
    segment: bool = True
    pad: int = 0

    def __call__(self, tapped: Tapped) -> str:
        seconds, nanoseconds = divmod(tapped.received_ns, 1_000_000_000)
        clock = f"{time.strftime('%H:%M:%S', time.localtime(seconds))}.{nanoseconds // 1_000_000:03d}"
        verdict = visible(tapped.verdict)
        rest = [" " * (self.pad - len(verdict)) + visible(tapped.peer)]
        if self.segment:
            rest = [" " * (self.pad - len(verdict)) + visible(tapped.segment), visible(tapped.peer)]
        if tapped.body is None:
            start = visible_bytes(tapped.raw[:_START]) + ("..." if len(tapped.raw) > _START else "")
            rest.append(start)
        else:
            src, seq, chan, payload = tapped.body
            rest += [visible_bytes(src), str(seq), visible_bytes(chan), visible_bytes(payload)]
        tail = " ".join(rest)
        if self.width is not None:
            tail = cut(tail, self.width() - len(clock) - len(verdict) - 2)
        if self.colour:
            verdict = click.style(verdict, **_STYLES.get(KIND_OF.get(tapped.verdict, ""), {}))
        return f"{clock} {verdict} {tail}"


def as_json(tapped: Tapped) -> str:
    fields: dict[str, object] = {
        "verdict": tapped.verdict,
        "segment": tapped.segment,
        "epoch": tapped.epoch,
        "received_ns": tapped.received_ns,
        "peer": tapped.peer,
        "magic": tapped.magic.decode("ascii"),
        "algo": tapped.algo.decode("ascii"),
    }
    if tapped.body is None:
        fields["datagram_base64"] = base64.b64encode(tapped.raw).decode("ascii")
    else:
        src, seq, chan, payload = tapped.body
        form = targets.FORM_NAMES[targets.form_of(chan)]
        fields |= {"src": src.decode("ascii"), "seq": seq, "chan": chan.decode("ascii"), "form": form}
        fields |= payload_fields(payload)
    return json.dumps(fields)


# -- bccn tap


def _read_verdicts(_context: click.Context, _param: click.Parameter, words: Sequence[str]) -> set[str]:
    named: set[str] = set()
    for word in words:
        if word in KINDS:
            named.update(KINDS[word])
        elif word in NAMES:
            named.add(word)
        else:
            raise click.BadParameter(f"{word!r} is neither a verdict ({', '.join(NAMES)}) nor a kind ({_LIST})")
    return named


_LIST: Final = ", ".join(KINDS)


@click.command()
@click.option(
    "-v", "--verdict", "named", metavar="NAME", multiple=True, callback=_read_verdicts, help="Only these: a verdict, "
    f"or a kind of them ({_LIST}). May be repeated."
)  # fmt: skip
@click.option("--refused", is_flag=True, help="Only what is not delivered, our own broadcasts (looped) among it.")
@click.option("-s", "--source", "sources", metavar="PREFIX", multiple=True, help="Only senders that begin so.")
@click.option("-c", "--channel", "channels", metavar="PATTERN", multiple=True, help="Only channels that match.")
@click.option("--segment", metavar="NAME", help="Only of this segment.")
@click.option("--json", "as_objects", is_flag=True, help="One JSON object a line.")
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True)
@click.option("-n", "--count", type=click.IntRange(min=1), help="End after so many datagrams.")
@click.option("-t", "--timeout", type=click.FloatRange(min=0), help="End after so many seconds; exit 1 if -n is unmet.")
@click.pass_obj
def tap(
    path: str,
    /,
    named: set[str],
    refused: bool,
    sources: Sequence[str],
    channels: Sequence[str],
    segment: str | None,
    as_objects: bool,
    color: str,
    count: int | None,
    timeout: float | None,
) -> None:
    """Show every datagram that arrives on the segments, and what became of it.

    \b
      bccn tap                              all of it
      bccn tap --refused -s relay02         what is not delivered of relay02, and why
      bccn tap -v integrity -v bad          forged, without a check, or no BCCN at all
      bccn tap -c 'cardsys/>' --json -n 10  ten datagrams, as JSON

    A line has the time, the verdict, the segment (on a terminal only if there are several), the peer's address, src,
    seq, channel and payload; of what cannot be read, its beginning. On a terminal a line is cut to its width. PREFIX is
    one or more whole parts of a name: relay02 takes relay02/cardsys/7 and not relay022. PATTERN is as for 'bccn sub'.
    With --json a payload that is no UTF-8 text stands in payload_base64, and a datagram that cannot be read in
    datagram_base64.

    Takes the right to tap: root and the daemon's own user and group have it, others by 'access' in its configuration.
    'bccn trace' tells more of one datagram.
    """
    verdicts = named | (set(NAMES[LAST_ACCEPTED + 1 :]) if refused else set())
    deadline = None if timeout is None else time.monotonic() + timeout
    with the_bus(path, reconnect=True) as bus:
        segments = _segments(bus)
        if segment is not None and segment not in segments:
            fail(f"there is no segment {segment!r} here, but: {visible(', '.join(segments))}")
        _subscribe(bus, verdicts)
        wanted = Wanted(sources, channels, segment)
        shown = as_json if as_objects else _line(color, verdicts, segments)
        found = map(shown, filter(wanted, _tapped(bus, deadline)))
        number = printed(found, count)
    sys.exit(1 if count is not None and number < count else 0)


def _segments(bus: Connection) -> list[str]:
    (daemon,) = listing(bus, "daemon")
    return [str(name) for name in daemon.get("segments", ())]


def _subscribe(bus: Connection, verdicts: set[str]) -> None:
    """Ask for no more than what is to be shown."""
    tap = frames.TAP.decode("ascii")
    bus.subscribe(*([tap] if verdicts >= set(NAMES) or not verdicts else [tap + name for name in sorted(verdicts)]))
    for refusal in bus.sync():
        if refusal.reason == "not_permitted":
            refuse_to_tap("you may not tap: it shows what is meant for others")
        fail(explain(refusal))


def refuse_to_tap(why: str) -> NoReturn:
    """End, for want of the right to tap."""
    fail(
        f"{why}\n  remedy: be root or in the daemon's group, or have it allowed in the daemon's configuration "
        "(access: [{user: NAME, tap: true}])"
    )


def _line(color: str, verdicts: set[str], segments: Sequence[str]) -> Line:
    terminal = sys.stdout.isatty()
    return Line(
        colour=wants_colour(color),
        width=(lambda: shutil.get_terminal_size().columns) if terminal else None,
        segment=not terminal or len(segments) > 1,
        pad=max(map(len, verdicts or ("integrity_missing",))) if terminal else 0,
    )


def _tapped(bus: Connection, deadline: float | None) -> Iterator[Tapped]:
    for message in follow(bus, deadline, "datagrams"):
        try:
            yield take_apart(*_bytes_of(message))
        except BadFrame:
            continue  # a message for this program, or for everyone


def _bytes_of(message: Message) -> tuple[bytes, bytes]:
    return to_bytes(message.chan), message.payload


# -- bccn trace


def read_hex(text: bytes) -> bytes:
    """Bytes from hexadecimal digits, with blanks and colons anywhere. Raises ValueError."""
    return bytes.fromhex(re.sub(rb"[\s:]", b"", text).decode("ascii"))


def without_newline(data: bytes) -> bytes:
    """What came from standard input without the newline that an editor or echo has put behind it: it is none of the
    datagram's if the length in the envelope says so."""
    if not data.endswith(b"\n"):
        return data
    try:
        bccn1.split_envelope(data[:-1])
    except BadDatagram:
        return data
    return data[:-1]


def _duration(_context: click.Context, _param: click.Parameter, value: str) -> float:
    """Seconds: a number of them, or one with ms, s, m or h."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)?", value)
    seconds = float(found[1]) * {"ms": 0.001, "m": 60.0, "h": 3600.0}.get(found[2], 1.0) if found else 0.0
    if not 0 < seconds <= _LONGEST:
        raise click.BadParameter(f"{value!r} is no time up to an hour: write 500ms, 30s, 5m or a number of seconds")
    return seconds


@click.command()
@click.argument("datagram", required=False)
@click.option("--hex", "as_hex", is_flag=True, help="DATAGRAM or the input is hexadecimal; blanks, : are left out.")
@click.option("--json", "as_object", is_flag=True, help="The answer as a JSON object; with --live, one for each event.")
@click.option("--live", is_flag=True, help="Follow a message instead: DATAGRAM is SRC:SEQ, or SRC:* for the next one.")
@click.option("--src", metavar="SRC", help="--live: whose message; SRC/* for anybody below.")
@click.option("--seq", metavar="SEQ", help="--live: which one; the next one without it.")
@click.option(
    "--wait", metavar="TIME", callback=_duration, default="30s", show_default=True, help="--live: for how long."
)
@click.option("--journal", metavar="DIR", help="--live: also what the recorder has of it, in its journal.")
@click.pass_context
def trace(
    context: click.Context,
    /,
    datagram: str | None,
    as_hex: bool,
    as_object: bool,
    live: bool,
    src: str | None,
    seq: str | None,
    wait: float,
    journal: str | None,
) -> None:
    """Ask what would become of DATAGRAM, if it came in now: stage by stage, with its verdict and its receivers. With
    --live, follow a message that is sent: each copy that comes in, why it was or was not delivered, and to whom.

    \b
      bccn trace 'BCCN1[32]relay02/sensor/77:1:demo/t1|21.5'
      bccn trace --hex 4243434e315b...
      bccn trace < datagram.bin
      bccn trace --live relay02/sensor/77:1042          wait for this one
      bccn trace --live 'relay02/*:*' --wait 5m         the next one of anybody on relay02

    Without DATAGRAM it is read from standard input; one newline at its end is left out if the length in the envelope
    says that it is none of the datagram's. Nothing is counted, remembered or delivered. The exit code is 0 whenever
    there is an answer, also if that is no; 1 if there is none. Takes the right to tap.

    With --live, what is known of the message is told at once. The exit code is 0 if it was seen, or had come before,
    and 1 if not. Ctrl-C ends it.
    """
    path: str = context.obj
    if live:
        if as_hex:
            raise click.UsageError("--hex is for a datagram, and --live takes SRC:SEQ")
        from bccnd.cli import trace_live  # most traces are of a datagram

        sender, number = trace_live.read_wanted(datagram, src, seq)
        patient = context.get_parameter_source("wait") is not ParameterSource.DEFAULT
        seen = trace_live.live(path, sender, number, wait=wait, patient=patient, journal=journal, as_json=as_object)
        sys.exit(0 if seen else 1)
    for name, value in (("--src", src), ("--seq", seq), ("--journal", journal)):
        if value is not None:
            raise click.UsageError(f"{name} needs --live")
    given = sys.stdin.buffer.read(4 * bccn1.MAX_UDP) if datagram is None else os.fsencode(datagram)
    if as_hex:
        try:
            given = read_hex(given)
        except ValueError:
            raise click.UsageError("this is not hexadecimal: two digits for each byte") from None
    elif datagram is None:
        given = without_newline(given)
    if len(given) > bccn1.MAX_UDP:
        fail(f"more than {bccn1.MAX_UDP} bytes are no datagram")
    with the_bus(path) as bus:
        try:
            answer = json.loads(bus.ask(frames.TRACE, given))
        except BusError as error:
            if error.reason == "not_permitted":
                refuse_to_tap("you may not trace: it shows who listens to what")
            raise
    if as_object:
        click.echo(json.dumps(answer))
    else:
        _print_trace(answer)


def _print_trace(answer: dict[str, Any]) -> None:
    print_table(
        ["stage", "passed", "found"],
        [
            [str(stage["stage"]), "yes" if stage["passed"] else "no", str(stage["finding"])]
            for stage in answer["stages"]
        ],
    )
    verdict = str(answer["verdict"])
    click.echo(f"\nverdict: {visible(verdict)}, {_MEANS[KIND_OF.get(verdict) == 'delivered']}")
    receivers = [visible(str(name)) for name in answer["receivers"]]
    for name in receivers:
        click.echo(f"receiver: {name}")
    if answer["more_receivers"]:
        click.echo(f"and {answer['more_receivers']} more")
    if not receivers and KIND_OF.get(verdict) == "delivered":
        click.echo("receivers: none")


_MEANS: Final = {True: "it would be delivered", False: "it would not be delivered"}
