"""`bccn top`: the figures of top_model.py on a terminal, again and again, or once.

A restarting daemon is waited for. The terminal is always restored.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from bccnd.cli import top_model as model
from bccnd.cli.connection import describe_failure, explain, fetch_listing, open_bus
from bccnd.cli.options import Duration
from bccnd.cli.output import cell_width, cut, fail, visible
from bccnd.cli.top_model import Figures, GatewayRow, Snapshot, TrafficCount
from bccnd.client.bus import Connection, Gap, connect
from bccnd.client.message import Message
from bccnd.errors import BusError

if TYPE_CHECKING:
    from rich.text import Text

#: the share of the time that fetching the sources, which may be many, may take
_SHARE: Final = 0.05
#: messages counted between two looks at the keyboard
_TURN: Final = 256
#: keys that end it: q, and what a terminal sends for Ctrl-C and Ctrl-D where it does not signal them
_QUIT: Final = frozenset(b"qQ\x03\x04")
#: the size without a terminal
_WIDTH: Final = 100
_HEIGHT: Final = 40

Item = tuple[str, str]


# -- collecting


class Collector:
    """Two connections to the daemon: one fetches listings, one receives all messages and counts them."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._lister: Connection | None = None
        self._listener: Connection | None = None
        self._traffic = TrafficCount()
        self._since = 0.0
        self._sources: tuple[dict[str, Any], ...] = ()
        self._sources_due = 0.0
        #: why no messages are received; empty if they are
        self.deaf = ""

    def open(self) -> Snapshot:
        """Connect, anew if need be. Raises BusError."""
        self.close()
        self._lister = connect(self._path, reconnect=False)
        self._sources_due = 0.0
        first = self.fetch()
        self.deaf = self._listen()
        self._traffic, self._since = TrafficCount(), time.monotonic()
        return first

    def _listen(self) -> str:
        """Subscribe to everything; why that was refused, or empty."""
        try:
            self._listener = connect(self._path, reconnect=False)
            self._listener.subscribe("")
            refusals = self._listener.sync()
        except BusError as error:
            if self._listener is None:
                return error.detail
            why = describe_failure(self._listener, error)
            self._listener.close()
            self._listener = None
            return why
        return explain(refusals[0]) if refusals else ""

    def close(self) -> None:
        for connection in (self._lister, self._listener):
            if connection is not None:
                connection.close()
        self._lister = self._listener = None

    def fetch(self) -> Snapshot:
        """The listings of the daemon. Raises BusError."""
        bus = self._lister
        if bus is None:
            raise BusError("connection_lost", "")
        at = time.monotonic()
        (daemon,) = fetch_listing(bus, "daemon")
        clients = tuple(fetch_listing(bus, "clients"))
        started = time.monotonic()
        if started >= self._sources_due:
            self._sources = tuple(fetch_listing(bus, "sources"))
            took = time.monotonic() - started
            self._sources_due = started + took / _SHARE if took > 0.01 else 0.0
        return Snapshot(at, daemon, clients, self._sources, tuple(fetch_listing(bus, "gateways")))

    def take_traffic(self) -> tuple[TrafficCount, float]:
        """The messages counted since the last call, and the seconds since then."""
        traffic, since = self._traffic, self._since
        self._traffic, self._since = TrafficCount(), time.monotonic()
        return traffic, self._since - since

    def count_until(self, until: float, keyboard: int | None) -> bool:
        """Count messages until then (monotonic); True as soon as a key asks for the end. Raises BusError."""
        poll = select.poll()
        if keyboard is not None:
            poll.register(keyboard, select.POLLIN)
        listener = self._listener
        if listener is not None:
            poll.register(listener.fileno(), select.POLLIN)
        while (left := until - time.monotonic()) > 0:
            for fd, _ in poll.poll(max(1, left * 1000)):
                if fd == keyboard:
                    typed = os.read(fd, 64)
                    if not typed or _QUIT.intersection(typed):
                        return True
                elif listener is not None:
                    self._count(listener)
        return False

    def _count(self, listener: Connection) -> None:
        for _ in range(_TURN):
            event = listener.receive(0)
            if event is None:
                return
            if isinstance(event, Message):
                self._traffic.add(event.chan, event.src, len(event.payload))
            elif isinstance(event, Gap):
                self._traffic.lost += event.lost


# -- drawing


def draw(shown: Figures, width: int, height: int, now: float, note: str = "", deaf: str = "") -> list[Text]:
    """Lines that fit; ``now`` is the wall clock, ``note`` a message to show as well."""
    from rich.text import Text

    segments = ", ".join(visible(name) for name in shown.segments) or "no segment"
    head = f"bccnd {visible(shown.version)} on {visible(shown.host)}, up {model.span(now - shown.started)}, {segments}"
    clock = time.strftime("  %H:%M:%S", time.localtime(now))
    lines = [Text(_fit(head, width - len(clock)) + clock, "bold")]
    for label, items in (("/s", _rates(shown)), ("lost", _losses(shown)), ("now", _counts(shown))):
        lines += _flow(label, items, width)
    notes = [note, f"channels and senders are not counted: {deaf}" if deaf else ""]
    lines.append(Text(cut("; ".join(visible(one) for one in notes if one), width), "bold yellow"))
    half = (width - 2) // 2
    room = max(4, height - len(lines) - 1)
    below = 1 + max(1, len(shown.worst_clients), len(shown.troubled_sources))
    upper = min(1 + max(1, len(shown.busy_channels), len(shown.busy_senders)), room - min(below, room // 2))
    lower = room - upper
    links = min(1 + max(len(shown.gateways), len(shown.peers)), lower // 2) if shown.gateways else 0
    lower -= links + 1 if links else 0
    missed = f" (missed {model.count(shown.unheard)})" if shown.unheard else ""
    busy = ("msg/s", "B/s")
    traffic, sizes = ("in/s", "out/s", "drop"), (6, 6, 6)
    clients, sources = ("queued", "lost", "pub/s"), ("state", "silent", "miss")
    tables = [
        (
            upper,
            (f"channel{missed}", *busy),
            (6, 6),
            _busy(shown.busy_channels),
            ("sender", *busy),
            (6, 6),
            _busy(shown.busy_senders),
        ),
        (lower, ("client", *clients), sizes, _clients(shown), ("in trouble", *sources), (6, 8, 6), _sources(shown)),
        (links, ("gateway", *traffic), sizes, _links(shown.gateways), ("peer", *traffic), sizes, _links(shown.peers)),
    ]
    for number, (size, titles, widths, rows, right_titles, right_widths, right_rows) in enumerate(tables):
        if not size:
            continue
        if number:
            lines.append(Text(""))
        left = _table(titles, widths, rows[: size - 1], half)
        right = _table(right_titles, right_widths, right_rows[: size - 1], half)
        for one in range(max(len(left), len(right))):
            line = left[one] if one < len(left) else Text(" " * half)
            line.append("  ")
            lines.append(line.append_text(right[one]) if one < len(right) else line)
    for line in lines:
        line.truncate(width)
    return lines[:height]


def _rates(shown: Figures) -> Iterator[Item]:
    styles = {"dropped": "yellow", "integrity": "red", "bad": "red", "looped": "dim"}
    for name in (
        *("received", "delivered", "dropped", "integrity", "bad", "looped", "sent", "published", "deliveries"),
    ):
        value = shown.rates.get(name)
        yield f"{name} {model.rate(value):>6}", styles.get(name, "") if value else ""


def _losses(shown: Figures) -> Iterator[Item]:
    losses = [(name.replace("_", " "), total, shown.new[name]) for name, total in shown.losses.items()]
    dropped = [(visible(name), total, shown.dropped_now.get(name)) for name, total in shown.dropped.items() if total]
    for name, total, new in (*losses, *dropped):
        yield f"{name} {model.count(total)}" + (f" (+{model.count(new)})" if new else ""), "red" if new else ""


def _counts(shown: Figures) -> Iterator[Item]:
    yield f"clients {model.count(shown.clients)}", ""
    yield f"subscriptions {model.count(shown.subscriptions)}", ""
    yield f"queued {model.size(shown.queue_bytes)}", "yellow" if shown.queue_bytes else ""
    yield f"sources {model.count(shown.sources)}", ""
    styles = {"alive": "green", "silent": "yellow", "dead": "red"}
    for state, number in shown.states.items():
        yield f"{state} {model.count(number)}", styles[state] if number else ""


def _flow(label: str, items: Iterable[Item], width: int) -> list[Text]:
    """Items one after the other behind a label, none of them broken."""
    from rich.text import Text

    lines = [Text(f"{label:<5}", "bold")]
    for text, style in items:
        if lines[-1].cell_len > 5 and lines[-1].cell_len + len(text) > width:
            lines.append(Text(" " * 5))
        lines[-1].append(cut(text, width - 5), style)
        lines[-1].append("  ")
    return lines


TableRow = tuple[list[str], str]


def _busy(rows: Sequence[model.Busy]) -> list[TableRow]:
    return [([row.name, model.rate(row.messages), model.size(row.bytes)], "") for row in rows]


def _clients(shown: Figures) -> list[TableRow]:
    rows: list[TableRow] = []
    for row in shown.worst_clients:
        style = "red" if row.lost_now else "yellow" if row.queued or row.waits else ""
        published = "waits" if row.waits else model.rate(row.published)
        rows.append(([row.identity, model.size(row.queued_bytes), model.count(row.lost), published], style))
    return rows


def _sources(shown: Figures) -> list[TableRow]:
    styles = {"silent": "yellow", "dead": "red"}
    return [
        ([row.src, row.state, model.span(row.silent_seconds), model.count(row.missing)], styles.get(row.state, ""))
        for row in shown.troubled_sources
    ]


def _links(links: Sequence[GatewayRow]) -> list[TableRow]:
    rows: list[TableRow] = []
    for row in links:
        peers = "" if row.peers is None else f" ({model.count(row.peers)} peers)" if row.up else " (DOWN)"
        numbers = [model.rate(row.received), model.rate(row.sent), model.count(row.dropped)]
        rows.append(([f"{row.name}{peers}", *numbers], "red" if not row.up or row.dropped_now else ""))
    return rows


def _table(titles: Sequence[str], widths: Sequence[int], rows: Sequence[TableRow], width: int) -> list[Text]:
    """A title and rows, exactly so wide; the first column takes what the others leave."""
    from rich.text import Text

    first = max(4, width - sum(widths) - len(widths))

    def line(texts: Sequence[str], style: str) -> Text:
        others = (f"{cut(visible(text), size):>{size}}" for text, size in zip(texts[1:], widths, strict=True))
        return Text(cut(" ".join((_fit(texts[0], first), *others)), width), style)

    return [line(titles, "bold reverse"), *(line(texts, style) for texts, style in rows)]


def _fit(name: str, width: int) -> str:
    """A name, exactly so wide; of a long one both ends, as names of one program differ at the end."""
    text = visible(name)
    width = max(1, width)
    if cell_width(text) > width:
        head = cut(text, width // 2)
        tail = text
        while cell_width(tail) > width - cell_width(head) - 1:
            tail = tail[1:]
        text = f"{head}~{tail}"
    return text + " " * (width - cell_width(text))


# -- the command


@click.command()
@click.option(
    "--interval", metavar="TIME", type=Duration(0.1, 3600), default="1s", show_default=True, help="Between two looks."
)
@click.option("--once", is_flag=True, help="Print the figures of one interval, and end.")
@click.option("--json", "as_object", is_flag=True, help="With --once: as a JSON object.")
@click.pass_obj
def top(path: str | None, /, interval: float, once: bool, as_object: bool) -> None:
    """Watch the daemon: rates, losses, queues, the busiest channels and senders, clients and sources in trouble.

    \b
      bccn top
      bccn top --interval 5s
      bccn top --once --json | jq .rates

    Ends with q or Ctrl-C; when the daemon is restarted, it goes on with the next one. Rates are per second, losses
    since the start of the daemon, with what is new behind a +. Channels and senders are counted by subscribing to
    everything: that costs the daemon as much as any other client that does, leaves out what is meant for one program
    only, and is marked where this tool was too slow to count all of it. Clients are those that lose or wait first,
    sources those that are silent, dead or have messages missing.
    """
    if as_object and not once:
        raise click.UsageError("--json needs --once")
    if not once and not sys.stdout.isatty():
        raise click.UsageError("this is no terminal: take --once")
    with open_bus(path) as bus:
        list(fetch_listing(bus, "daemon"))  # so that errors are reported as by every other command
    collector = Collector(path)
    try:
        if once:
            _print_once(collector, interval, as_object)
        else:
            _show(collector, interval)
    finally:
        collector.close()


def _print_once(collector: Collector, interval: float, as_object: bool) -> None:
    try:
        before = collector.open()
        collector.count_until(time.monotonic() + interval, None)
        after = collector.fetch()
    except BusError as error:
        fail(error.detail)
    shown = model.figures(before, after, *collector.take_traffic())
    if as_object:
        click.echo(json.dumps(asdict(shown) | {"deaf": collector.deaf}))
        return
    from rich.console import Console

    width = None if sys.stdout.isatty() else _WIDTH
    console = Console(width=width, markup=False, highlight=False, emoji=False, soft_wrap=True)
    for line in draw(shown, console.width, _HEIGHT, time.time(), deaf=collector.deaf):
        line.rstrip()
        console.print(line)


def _show(collector: Collector, interval: float) -> None:
    from rich.console import Console, Group

    console = Console(markup=False, highlight=False, emoji=False)
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGHUP, _interrupt)
    with contextlib.suppress(KeyboardInterrupt), _open_keyboard() as keyboard, console.screen() as screen:

        def show(shown: Figures, note: str) -> None:
            width, height = console.size
            screen.update(Group(*draw(shown, width, height, time.time(), note, collector.deaf)))

        _refresh(collector, interval, keyboard, show)


def _refresh(collector: Collector, interval: float, keyboard: int | None, show: Callable[[Figures, str], None]) -> None:
    """Show new figures after each interval, until a key asks for the end."""
    before: Snapshot | None = None
    shown: Figures | None = None
    away = ""
    connected = False
    note = ""
    while True:
        until = time.monotonic() + interval
        clock = time.strftime("%H:%M:%S")
        try:
            after = collector.fetch() if connected else collector.open()
            connected = True
            if away:
                note, away = f"the daemon was away, and is back since {clock}", ""
            if model.restarted(before, after):
                note = f"the daemon was restarted; back since {clock}"
            shown = model.figures(before, after, *collector.take_traffic())
            before = after
            show(shown, note)
            if collector.count_until(until, keyboard):
                return
        except BusError as error:
            collector.close()
            connected = False
            away = away or clock
            if shown is not None:
                show(shown, f"AWAY since {away}: {error.detail}")
            if collector.count_until(until, keyboard):
                return


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


@contextlib.contextmanager
def _open_keyboard() -> Iterator[int | None]:
    """The descriptor on which single keys arrive, if there is a keyboard."""
    if not sys.stdin.isatty():
        yield None
        return
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    tty.setcbreak(fd)
    try:
        yield fd
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
