"""`bccn tap`: every datagram with its verdict, as lines, JSON or a capture; and the clients that received it."""

from __future__ import annotations

import base64
import json
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, NamedTuple, NoReturn

import click

from bccnd.cli.shared.connection import explain, fetch_listing, matcher, open_bus, receive_messages
from bccnd.cli.shared.options import color_option, count_options, deadline_after, json_option
from bccnd.cli.shared.output import (
    REFUSED,
    clock,
    cut,
    fail,
    payload_fields,
    print_items,
    to_json,
    visible,
    visible_bytes,
    wants_colour,
)
from bccnd.cli.shared.parameter_types import SegmentAddress, Whole
from bccnd.client.bus import Connection
from bccnd.client.message import to_bytes
from bccnd.core.formats import pcapng
from bccnd.core.wire import bccn1, directed_targets, frames
from bccnd.core.wire.verdicts import LAST_ACCEPTED, NAMES
from bccnd.errors import BadDatagram, BadFrame
from bccnd.version import VERSION

#: kinds of verdicts, and their colours
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
_KINDS: Final = ", ".join(KINDS)
_STYLES: Final[dict[str, dict[str, Any]]] = {
    "delivered": {"fg": "green"},
    "dropped": {"fg": "yellow"},
    "integrity": {"fg": "red"},
    "bad": {"fg": "red"},
    "looped": {"dim": True},
}
#: characters of an unreadable datagram that are shown where there is no terminal
_START: Final = 200


class TapRecord(NamedTuple):
    """A datagram from the tap. ``magic`` and ``algo`` are empty if there is no envelope, ``body`` (src, seq, chan,
    payload) is None if it cannot be read."""

    verdict: str
    segment: str
    epoch: int
    received_ns: int
    peer: str
    raw: bytes
    magic: bytes
    algo: bytes
    body: tuple[bytes, int, bytes, bytes] | None


def read_record(key: bytes, payload: bytes) -> TapRecord:
    """Read a message of the tap. Raises BadFrame."""
    fields = frames.read_tapped(key, payload)
    magic = algo = b""
    body = None
    try:
        magic, check, inside = bccn1.split_envelope(fields[-1])
        algo = check.partition(b"=")[0]
        if magic == bccn1.MAGIC:
            body = bccn1.read_body(inside)
    except BadDatagram:
        pass
    return TapRecord(*fields, magic, algo, body)


class TapFilter:
    """Selects datagrams by sender, channel, seq and segment; what is empty or None selects all."""

    def __init__(
        self, sources: Sequence[str] = (), channels: Sequence[str] = (), segment: str | None = None,
        seq: int | None = None,
    ) -> None:  # fmt: skip
        self._sources = tuple(to_bytes(prefix).rstrip(b"/") + b"/" for prefix in sources)
        self._segment = segment
        self._seq = seq
        self._matches = matcher(channels) if channels else None

    def __call__(self, record: TapRecord) -> bool:
        if self._segment is not None and record.segment != self._segment:
            return False
        if record.body is None:
            return not self._sources and self._matches is None and self._seq is None
        src, seq, chan, _ = record.body
        return (
            (not self._sources or (src + b"/").startswith(self._sources))
            and (self._matches is None or self._matches(chan))
            and self._seq in (None, seq)
        )


@dataclass(frozen=True)
class TapLine:
    """Formats a datagram as a line, cut to ``width`` columns. Verdicts are padded to ``pad`` columns."""

    colour: bool = False
    width: Callable[[], int] | None = None
    segment: bool = True
    pad: int = 0

    def __call__(self, record: TapRecord) -> str:
        time, verdict = clock(record.received_ns), visible(record.verdict)
        rest = [visible(record.segment)] if self.segment else []
        rest.append(visible(record.peer))
        if record.body is None:
            rest.append(visible_bytes(record.raw[:_START]) + ("..." if len(record.raw) > _START else ""))
        else:
            src, seq, chan, payload = record.body
            rest += [visible_bytes(src), str(seq), visible_bytes(chan), visible_bytes(payload)]
        tail = " " * (self.pad - len(verdict)) + " ".join(rest)
        if self.width is not None:
            tail = cut(tail, self.width() - len(time) - len(verdict) - 2)
        if self.colour:
            verdict = click.style(verdict, **_STYLES.get(KIND_OF.get(record.verdict, ""), {}))
        return f"{time} {verdict} {tail}"


def as_fields(record: TapRecord) -> dict[str, object]:
    """Return a datagram for JSON."""
    fields: dict[str, object] = dict(zip(record._fields[:5], record[:5], strict=True))
    fields |= {"magic": record.magic.decode("ascii"), "algo": record.algo.decode("ascii")}
    if record.body is None:
        return fields | {"datagram_base64": base64.b64encode(record.raw).decode("ascii")}
    src, seq, chan, payload = record.body
    form = directed_targets.FORM_NAMES[directed_targets.form_of(chan)]
    fields |= {"src": src.decode("ascii"), "seq": seq, "chan": chan.decode("ascii"), "form": form}
    return fields | payload_fields(payload)


class TapCapture:
    """Writes datagrams as a capture: an interface for each segment, the verdict as each packet's comment. ``path`` is
    for messages."""

    def __init__(self, file: BinaryIO, path: str) -> None:
        self._file, self._path = file, path
        self._interfaces: dict[str, int] = {}
        self._put(pcapng.begin_section(f"bccn tap {VERSION}"))

    def write(self, record: TapRecord, explanation: Sequence[str] = ()) -> None:
        interface = self._interfaces.get(record.segment)
        if interface is None:
            interface = self._interfaces[record.segment] = len(self._interfaces)
            self._put(pcapng.describe_interface(record.segment))
        data = pcapng.udp_packet(record.peer, record.segment, record.raw)
        self._put(pcapng.packet(interface, record.received_ns, data, "\n".join([record.verdict, *explanation])))

    def _put(self, block: bytes) -> None:
        try:
            self._file.write(block)
        except OSError as error:
            if self._file is sys.stdout.buffer:
                raise
            fail(f"cannot write {self._path}: {error.strerror}")


# -- which clients received it, and why


def ask_receivers(bus: Connection, record: TapRecord) -> dict[str, Any]:
    """Ask the daemon where a datagram went: ``receivers``, ``more_receivers`` and ``gateways``; or ``reason``, why it
    was not delivered."""
    local = record.verdict == "looped"
    if record.body is None or not (local or KIND_OF.get(record.verdict) == "delivered"):
        from bccnd.drop_catalog.drops import BY_NAME  # other commands do not need it

        drop = BY_NAME.get(("datagrams", record.verdict))
        return {"reason": record.verdict if drop is None else drop.means}
    answer: dict[str, Any] = json.loads(bus.ask(frames.RECEIVERS, record.body[2]))
    gateways = "links" if record.segment in frames.LINKS else "links_here"
    answer["gateways"] = [] if local and record.segment in frames.LINKS else answer.pop(gateways)
    return {name: answer[name] for name in ("receivers", "more_receivers", "gateways")}


def explanation_lines(record: TapRecord, found: dict[str, Any]) -> Iterator[str]:
    """Return the lines that --explain prints below a datagram."""
    if "reason" in found:
        yield f"  not delivered: {found['reason']}"
        return
    if record.verdict == "looped":
        yield "  our own broadcast; at its publication it was delivered"
    for one in found["receivers"]:
        if one["patterns"]:
            why = f"by {' '.join(repr(text) for text in one['patterns'])}"
        else:
            why = "by one of its patterns" if not record.body or record.body[2][:1] != b"!" else "as it is addressed"
        state = f"; {one['queued']} wait in its queue" if one["queued"] else ""
        state += f"; {one['lost']} lost so far" if one["lost"] else ""
        yield f"  to {visible(one['identity'])} {visible(why)}{state}"
    if found["more_receivers"]:
        yield f"  and to {found['more_receivers']} more"
    if not found["receivers"]:
        yield "  to no client of this host: no pattern matches"
    for identity in found["gateways"]:
        yield f"  on to {visible(identity)}, a gateway"


# -- the command


def _read_verdicts(_context: click.Context, _param: click.Parameter, words: Sequence[str]) -> set[str]:
    named: set[str] = set()
    for word in words:
        if word in KINDS:
            named.update(KINDS[word])
        elif word in NAMES:
            named.add(word)
        else:
            raise click.BadParameter(f"{word!r} is neither a verdict ({', '.join(NAMES)}) nor a kind ({_KINDS})")
    return named


@click.command()
@click.option(
    "-v", "--verdict", "named", metavar="NAME", multiple=True, callback=_read_verdicts, help="Only this verdict, "
    f"or a kind of them ({_KINDS}). May be repeated."
)  # fmt: skip
@click.option(
    "--refused", is_flag=True, help="Only datagrams that are not delivered, including this host's own (looped)."
)
@click.option("-s", "--source", "sources", metavar="PREFIX", multiple=True, help="Only this sender and those below it.")
@click.option("--seq", type=Whole(0, bccn1.MAX_SEQ), help="Only datagrams with this number.")
@click.option("-c", "--channel", "channels", metavar="PATTERN", multiple=True, help="Only channels that match.")
@click.option("--segment", metavar="NAME", help="Only this segment: its name, or ADDRESS:PORT.")
@click.option(
    "--explain", "explained", is_flag=True, help="Show the clients that received each datagram, and their patterns."
)
@click.option(
    "--pcapng",
    "capture",
    metavar="FILE",
    type=click.Path(dir_okay=False, allow_dash=True),
    help="Write a capture for Wireshark instead of lines; - is the output.",
)
@json_option()
@color_option
@count_options("datagrams")
@click.pass_obj
def tap(
    path: str | None, /, named: set[str], refused: bool, segment: str | None, explained: bool, capture: str | None,
    as_json: bool, color: str, count: int | None, timeout: float | None, **wanted: Any,
) -> None:  # fmt: skip
    """Show every datagram that arrives on the segments, and its verdict.

    \b
      bccn tap                              all of them
      bccn tap --refused -s relay02         datagrams of relay02 that are not delivered, and why
      bccn tap -v integrity -v bad          forged, without a check, or not BCCN
      bccn tap --explain -n 1 -s relay02    the next datagram of relay02, and the clients that received it
      bccn tap -c 'cardsys/>' --json -n 10  ten datagrams, as JSON
      bccn tap --pcapng - | wireshark -k -i -
                                            all of them in Wireshark, verdicts as comments

    A line has the time, the verdict, the segment (on a terminal only if the host has several), the peer's address, src,
    seq, channel and payload. For a datagram that cannot be parsed, the line has its beginning. On a terminal, lines are
    cut to its width. PREFIX is one or more whole parts of a name: relay02 matches relay02/cardsys/7 and not relay022.
    PATTERN is as for 'bccn sub'. With --json, a payload that is not UTF-8 text is in payload_base64, and a datagram
    that cannot be parsed is in datagram_base64.

    --explain asks the daemon about each datagram shown: its clients, the patterns that match, how many messages wait
    for each client or were lost to it, and the gateways; or why the datagram was not delivered. The clients are those
    connected just after the datagram arrived.

    A capture (--pcapng) holds what the daemon received: its verdict, and with --explain the clients, are the comment of
    each packet (frame.comment). The tap has no IP and UDP headers; they are made from the addresses of sender and
    segment, and are zeros where a link brought the datagram.

    This requires the right to tap: root and the daemon's own user and group have it; 'access' in the daemon's
    configuration grants it to others.
    """
    if capture is not None and as_json:
        raise click.UsageError("--pcapng and --json cannot be combined")
    verdicts = named | (set(NAMES[LAST_ACCEPTED + 1 :]) if refused else set())
    with open_bus(path, reconnect=True) as bus:
        (daemon,) = fetch_listing(bus, "daemon")
        segments = [str(name) for name in daemon.get("segments", ())]
        if segment is not None:
            segment = _find_segment(segment, segments)
        _subscribe(bus, verdicts)
        select = TapFilter(**wanted, segment=segment)
        terminal = sys.stdout.isatty()
        line = TapLine(
            colour=wants_colour(color),
            width=(lambda: shutil.get_terminal_size().columns) if terminal else None,
            segment=not terminal or len(segments) > 1,
            pad=max(map(len, verdicts or ("integrity_missing",))) if terminal else 0,
        )

        written = None if capture is None else TapCapture(_open_capture(capture), capture)

        def show(record: TapRecord) -> None:
            found = ask_receivers(bus, record) if explained else {}
            explanation = [*explanation_lines(record, found)] if explained else []
            if written is not None:
                written.write(record, explanation)
            elif as_json:
                sys.stdout.write(to_json(as_fields(record) | found) + "\n")
            else:
                sys.stdout.write("\n".join([line(record), *explanation]) + "\n")

        print_items(filter(select, _records(bus, deadline_after(timeout))), show, count)


def _open_capture(path: str) -> BinaryIO:
    """Open a file for a capture. It has no buffer, so that each packet is shown at once."""
    if path == "-":
        if sys.stdout.isatty():
            fail("a capture is not for a terminal\n  remedy: name a file, or: bccn tap --pcapng - | wireshark -k -i -")
        return sys.stdout.buffer
    try:
        return open(path, "wb", buffering=0)
    except OSError as error:
        fail(f"cannot write {path}: {error.strerror}")


def _find_segment(text: str, segments: Sequence[str]) -> str:
    """Return the name of a segment, from that or from its address."""
    if text in segments:
        return text
    try:
        name = "{}#{}".format(*SegmentAddress().convert(text, None, None))
    except click.BadParameter:
        name = text
    if name not in segments:
        fail(f"there is no segment {text!r} here, but: {visible(', '.join(segments))}")
    return name


def _subscribe(bus: Connection, verdicts: set[str]) -> None:
    """Subscribe to these verdicts; to all if there are none."""
    tap = frames.TAP.decode("ascii")
    bus.subscribe(*([tap] if not verdicts or verdicts >= set(NAMES) else [tap + name for name in sorted(verdicts)]))
    for refusal in bus.sync():
        if refusal.reason == "not_permitted":
            refuse_to_tap("you may not tap: the tap shows messages for others")
        fail(explain(refusal), REFUSED)


def refuse_to_tap(why: str) -> NoReturn:
    """End the command, as the user lacks the right to tap."""
    allow = "allow it in the daemon's configuration (access: [{user: NAME, tap: true}])"
    fail(f"{why}\n  remedy: be root or in the daemon's group, or {allow}", REFUSED)


def _records(bus: Connection, deadline: float | None) -> Iterator[TapRecord]:
    for message in receive_messages(bus, deadline, "datagrams"):
        try:
            yield read_record(to_bytes(message.chan), message.payload)
        except BadFrame:
            continue  # a message for this program, or for all
