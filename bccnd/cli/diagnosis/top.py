"""`bccn top`: shows the figures of top_model on a terminal, also after restarts of the daemon; or prints them once."""

from __future__ import annotations

import contextlib
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, NoReturn

import click

from bccnd.cli.diagnosis import top_model as model
from bccnd.cli.diagnosis.top_model import Figures, Row, Snapshot, TrafficCount
from bccnd.cli.shared.connection import explain, fetch_listing, open_bus
from bccnd.cli.shared.options import Duration, json_option
from bccnd.cli.shared.output import cell_width, cut, fail, to_json, visible
from bccnd.client.bus import Connection, Gap, connect
from bccnd.client.message import Message
from bccnd.errors import BusError
from bccnd.waiting_io import read_input

if TYPE_CHECKING:
    from rich.text import Text

#: the share of the time that fetching the sources, which may be many, may take
_SHARE: Final = 0.05
#: messages counted before the keyboard is checked
_TURN: Final = 256
#: keys that end the command: q, Ctrl-C and Ctrl-D
_QUIT: Final = frozenset(b"qQ\x03\x04")
#: the size without a terminal
_WIDTH, _HEIGHT = 100, 40

#: styles by state, and of titles
_STATES: Final = {"alive": "green", "silent": "yellow", "dead": "red"}
_TITLE: Final = "bold reverse"

#: a text with its style, and the texts of a line in a table with theirs
Item = tuple[str, str]
Line = tuple[list[str], str]


class Collector:
    """Fetches listings of the daemon, and receives all messages to count them."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._bus: Connection | None = None
        self._traffic = TrafficCount()
        self._since = 0.0
        self._sources: tuple[Row, ...] = ()
        self._worst_links: tuple[Row, ...] = ()
        self._sources_due = 0.0
        #: why no messages are counted; empty if they are
        self.deaf = ""

    def fetch(self) -> Snapshot:
        """Return the listings of the daemon; connect first if there is no connection. Raises BusError."""
        connected = self._bus is not None
        bus = self._bus = self._bus or connect(self._path, reconnect=False)
        if not connected:
            self._sources_due = 0.0
        at = time.monotonic()
        (daemon,) = fetch_listing(bus, "daemon")
        clients = tuple(fetch_listing(bus, "clients"))
        started = time.monotonic()
        if started >= self._sources_due:
            self._sources = tuple(fetch_listing(bus, "sources"))
            self._worst_links = tuple(fetch_listing(bus, "worst_links"))
            took = time.monotonic() - started
            self._sources_due = started + took / _SHARE if took > 0.01 else 0.0
        gateways = tuple(fetch_listing(bus, "gateways"))
        snapshot = Snapshot(at, daemon, clients, self._sources, gateways, self._worst_links)
        if not connected:
            bus.subscribe("")
            refusals = bus.sync()
            self.deaf = explain(refusals[0]) if refusals else ""
            self.take_traffic()
        return snapshot

    def close(self) -> None:
        if self._bus is not None:
            self._bus.close()
            self._bus = None

    def take_traffic(self) -> tuple[TrafficCount, float]:
        """Return the messages counted since the last call, and the seconds since then."""
        traffic, since = self._traffic, self._since
        self._traffic, self._since = TrafficCount(), time.monotonic()
        return traffic, self._since - since

    def count_until(self, until: float, keyboard: int | None) -> bool:
        """Count messages until then (monotonic); return True as soon as a key ends the command. Raises BusError."""
        poll = select.poll()
        if keyboard is not None:
            poll.register(keyboard, select.POLLIN)
        bus = self._bus
        if bus is not None:
            self._count(bus)
            poll.register(bus.fileno(), select.POLLIN)
        while (left := until - time.monotonic()) > 0:
            for fd, _ in poll.poll(max(1, left * 1000)):
                if fd == keyboard:
                    typed = read_input(fd, 64)
                    if not typed or _QUIT.intersection(typed):
                        return True
                elif bus is not None:
                    self._count(bus)
        return False

    def _count(self, bus: Connection) -> None:
        for _ in range(_TURN):
            event = bus.receive(0)
            if event is None:
                return
            if isinstance(event, Message):
                self._traffic.add(event.chan, event.src, len(event.payload))
            elif isinstance(event, Gap):
                self._traffic.lost += event.lost


# -- drawing


def draw(shown: Figures, width: int, height: int, now: float, note: str = "", deaf: str = "") -> list[Text]:
    """Draw lines that fit. ``now`` is the wall clock; ``note`` and ``deaf`` are shown as well."""
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
    fleet = min(1 + len(shown.worst_links), max(2, lower // 3)) if shown.worst_links else 0
    lower -= fleet + 1 if fleet else 0
    links = min(1 + max(len(shown.gateways), len(shown.peers)), lower // 2) if shown.gateways else 0
    lower -= links + 1 if links else 0
    missed = f" (missed {model.count(shown.unheard)})" if shown.unheard else ""
    tables = [
        (upper, _busy(f"channel{missed}", shown.busy_channels), _busy("sender", shown.busy_senders)),
        (lower, _clients(shown), _sources(shown)),
        (links, _links("gateway", shown.gateways), _links("peer", shown.peers)),
    ]
    for number, (rows, left, right) in enumerate(tables):
        if number and rows:
            lines.append(Text(""))
        blank = (Text(" " * half), Text(""))
        for one, two in zip_longest(_table(left[:rows], half), _table(right[:rows], half)):
            lines.append((one or blank[0]) + Text("  ") + (two or blank[1]))
    if fleet:
        lines += [Text(""), *_table(_fleet(shown)[:fleet], width)]
    for line in lines:
        line.truncate(width)
    return lines[:height]


def _rates(shown: Figures) -> Iterator[Item]:
    styles = {"dropped": "yellow", "integrity": "red", "bad": "red", "looped": "dim"}
    kinds = ("received", "delivered", "dropped", "integrity", "bad", "looped", "sent", "published", "deliveries")
    for name in kinds:
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
    for state, number in shown.states.items():
        yield f"{state} {model.count(number)}", _STATES[state] if number else ""


def _busy(title: str, rows: Sequence[Row]) -> list[Line]:
    found = [([row["name"], model.rate(row["messages"]), model.size(row["bytes"])], "") for row in rows]
    return [([title, "msg/s", "B/s"], _TITLE), *found]


def _clients(shown: Figures) -> list[Line]:
    lines: list[Line] = [(["client", "queued", "lost", "pub/s"], _TITLE)]
    for row in shown.worst_clients:
        style = "red" if row["lost_now"] else "yellow" if row["queued"] or row["waits"] else ""
        published = "waits" if row["waits"] else model.rate(row["published"])
        lines.append(([row["identity"], model.size(row["queued_bytes"]), model.count(row["lost"]), published], style))
    return lines


def _sources(shown: Figures) -> list[Line]:
    lines: list[Line] = [(["in trouble", "state", "silent", "miss"], _TITLE)]
    for row in shown.troubled_sources:
        texts = [row["src"], row["state"], model.span(row["silent_seconds"]), model.count(row["missing"])]
        lines.append((texts, _STATES.get(row["state"], "")))
    return lines


def _links(title: str, rows: Sequence[Row]) -> list[Line]:
    lines: list[Line] = [([title, "in/s", "out/s", "drop"], _TITLE)]
    for row in rows:
        peers = "" if row["peers"] is None else f" ({model.count(row['peers'])} peers)" if row["up"] else " (DOWN)"
        numbers = [model.rate(row["received"]), model.rate(row["sent"]), model.count(row["dropped"])]
        lines.append(([row["name"] + peers, *numbers], "red" if not row["up"] or row["dropped_now"] else ""))
    return lines


def _fleet(shown: Figures) -> list[Line]:
    lines: list[Line] = [(["loss between hosts, in the last minute or two", "lost", "of", "rate"], _TITLE)]
    for row in shown.worst_links:
        due = row["received"] + row["lost"]
        texts = [f"{row['receiver']} of {row['sender']}", model.count(row["lost"]), model.count(due)]
        lines.append(([*texts, f"{100 * row['lost'] / due:.2g} %"], "red"))
    return lines


def _table(lines: Sequence[Line], width: int) -> Iterator[Text]:
    """Draw a title and rows, ``width`` cells wide; the first column takes what the others, of 6 or 8 cells, leave."""
    from rich.text import Text

    for texts, style in lines:
        sizes = [8 if title == "silent" else 6 for title in lines[0][0][1:]]
        others = (f"{cut(visible(text), size):>{size}}" for text, size in zip(texts[1:], sizes, strict=True))
        first = max(4, width - sum(sizes) - len(sizes))
        yield Text(cut(" ".join((_fit(texts[0], first), *others)), width), style)


def _flow(label: str, items: Iterable[Item], width: int) -> list[Text]:
    """Wrap items behind a label; no item is broken."""
    from rich.text import Text

    lines = [Text(f"{label:<5}", "bold")]
    for text, style in items:
        if lines[-1].cell_len > 5 and lines[-1].cell_len + len(text) > width:
            lines.append(Text(" " * 5))
        lines[-1].append(cut(text, width - 5), style)
        lines[-1].append("  ")
    return lines


def _fit(name: str, width: int) -> str:
    """Fit a name into ``width`` cells; of a long one keep both ends, as names of one program differ at the end."""
    text = visible(name)
    width = max(1, width)
    if cell_width(text) > width:
        head = cut(text, width // 2)
        tail = text
        while cell_width(tail) > width - cell_width(head) - 1:
            tail = tail[1:]
        text = f"{head}~{tail}"
    return text + " " * (width - cell_width(text))


@click.command()
@click.option("--interval", metavar="TIME", type=Duration(0.1, 3600), default="1s", help="Time between two updates.")
@click.option("--once", is_flag=True, help="Print the figures of one interval, and end.")
@json_option("With --once: print a JSON object.")
@click.pass_obj
def top(path: str | None, /, interval: float, once: bool, as_json: bool) -> None:
    """Watch the daemon: rates, losses, queues, busiest channels and senders, programs in trouble, and the worst links.

    \b
      bccn top
      bccn top --interval 5s
      bccn top --once --json | jq .rates

    Press q or Ctrl-C to end. After a restart of the daemon, the command reconnects. Rates are per second. Losses are
    totals, as in the metrics, followed by + and the new ones. To count channels and senders, the command subscribes to
    everything, which costs the daemon as much as any other such client. These counts exclude messages to one program,
    and are marked if this command was too slow to count all. Clients with losses or waiting messages come first;
    sources are those that are silent, dead or have missing messages. The last lines are the worst links of the fleet:
    which host loses messages from which other, by their reports.
    """
    if as_json and not once:
        raise click.UsageError("--json needs --once")
    if not once and not sys.stdout.isatty():
        raise click.UsageError("standard output is not a terminal: use --once")
    with open_bus(path) as bus:
        list(fetch_listing(bus, "daemon"))  # so that errors are reported as by every other command
    with contextlib.closing(Collector(path)) as collector:
        if once:
            _print_once(collector, interval, as_json)
        else:
            _show(collector, interval)


def _print_once(collector: Collector, interval: float, as_json: bool) -> None:
    try:
        before = collector.fetch()
        collector.count_until(time.monotonic() + interval, None)
        shown = model.figures(before, collector.fetch(), *collector.take_traffic())
    except BusError as error:
        fail(error.detail)
    if as_json:
        click.echo(to_json(asdict(shown) | {"deaf": collector.deaf}))
        return
    from rich.console import Console

    width = None if sys.stdout.isatty() else _WIDTH
    console = Console(width=width, markup=False, highlight=False, emoji=False, soft_wrap=True)
    for line in draw(shown, console.width, _HEIGHT, time.time(), deaf=collector.deaf):
        line.rstrip()
        console.print(line)


def _show(collector: Collector, interval: float) -> None:
    """Show new figures after each interval, until a key ends the command."""
    from rich.console import Console, Group

    console = Console(markup=False, highlight=False, emoji=False)
    before: Snapshot | None = None
    shown: Figures | None = None
    away = note = ""
    ended = interrupted = False

    def interrupt(_number: int, _frame: object) -> NoReturn:
        nonlocal interrupted
        interrupted = True  # Python ignores what is raised in some places, as while it imports a module
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)

    def render(figures: Figures, note: str) -> Group:
        return Group(*draw(figures, *console.size, time.time(), note, collector.deaf))

    with contextlib.suppress(KeyboardInterrupt), _open_keyboard() as keyboard, console.screen() as screen:
        while not (ended or interrupted):
            until = time.monotonic() + interval
            clock = time.strftime("%H:%M:%S")
            try:
                after = collector.fetch()
                if away:
                    note, away = f"the daemon was away until {clock}", ""
                if model.restarted(before, after):
                    note = f"the daemon was restarted at {clock}"
                shown = model.figures(before, after, *collector.take_traffic())
                before = after
                screen.update(render(shown, note))
                ended = collector.count_until(until, keyboard)
            except BusError as error:
                collector.close()
                away = away or clock
                if shown is not None:
                    screen.update(render(shown, f"AWAY since {away}: {error.detail}"))
                ended = collector.count_until(until, keyboard)


@contextlib.contextmanager
def _open_keyboard() -> Iterator[int | None]:
    """Yield the descriptor on which single keys arrive, None without a keyboard; restore the terminal at the end."""
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
