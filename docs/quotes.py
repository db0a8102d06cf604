"""Which sentences and cells of documents quote which measured figures, and the documents with the figures in them.

In a quote the figures stand between « and »; the rest has to stand in the page to the letter, but for line breaks.
"""

from __future__ import annotations

import re
from typing import Final

from docs.figures import Figures, fraction, per_second, percent, thousands, times, two_digits, us

FAN_OUTS: Final = (1, 8, 64)
#: bytes for which the kernel charges a datagram of 150 bytes on loopback, and any that a NIC has received
CHARGED_150: Final = 832
CHARGED_NIC: Final = 2304
_FIGURE: Final = re.compile("«(.*?)»")
#: rows of the table of CPU in comparison.md: title, case, mode
_ROWS: Final = (
    ("the floor, with HMAC", "floor_hmac", "saturated"),
    ("bccnd", "bccnd", "saturated"),
    ("bccnd, batch mode", "bccnd_batch", "saturated"),
    ("mosquitto", "mosquitto", "saturated"),
    ("Redis", "redis", "saturated"),
    ("NATS", "nats", "saturated"),
    ("2,000 a second: the floor, with HMAC and epoll", "floor_epoll", "paced"),
    ("2,000 a second: bccnd", "bccnd", "paced"),
    ("2,000 a second: Redis", "redis", "paced"),
)
_FLOORS: Final = {"saturated": "floor_hmac", "paced": "floor_epoll"}


def three(figures: Figures, case: str, mode: str = "saturated") -> str:
    """Write what a message costs to 1, 8 and 64 clients, in us."""
    return "«" + ", ".join(us(figures.cpu(case, clients, mode)) for clients in FAN_OUTS) + "»"


def rows(figures: Figures) -> list[str]:
    """Return the rows of the table of CPU."""
    made = []
    for title, case, mode in _ROWS:
        cells = []
        for clients in FAN_OUTS:
            median, least, most = figures.spread(case, clients, mode)
            beside = figures.cpu(_FLOORS[mode], clients, mode)
            ratio = "" if case == _FLOORS[mode] else f" x{median / beside:.2f}"
            cells.append(f"«{thousands(median)} ({thousands(least)} to {thousands(most)}){ratio}»")
        made.append(f"\n| {title} | {' | '.join(cells)} |")
    latencies = (
        ", ".join(thousands(figures.latency(case, clients)) for case in ("floor_epoll", "bccnd", "redis"))
        for clients in FAN_OUTS
    )
    return [
        *made,
        "| median latency then, us: floor, bccnd, Redis | " + "".join(f"«{one}» | " for one in latencies).rstrip(),
    ]


def quotes(figures: Figures) -> dict[str, list[str]]:
    """Return the quotes of each page."""
    cpu = figures.cpu
    quiet = cpu("bccnd", 1, "paced")
    about = figures.about("saturated")
    nats = fraction(cpu("nats", 1) / cpu("bccnd", 1))
    nats_64, redis_64 = (fraction(cpu(case, 64) / cpu("bccnd", 64)) for case in ("nats", "redis"))
    core = percent(2000 * quiet / 1e9)
    at_1, at_8, at_64 = (per_second(figures.scale("clients", "bccnd", clients)) for clients in FAN_OUTS)
    batch_64 = per_second(figures.scale("clients", "bccnd_batch", 64))
    slope = figures.client("bccnd_each_ns")
    unwanted = us(figures.scale("clients", "bccnd", 0))
    turns, many = (figures.scale("channels", "one_alternating", count) for count in (16, 10_000))
    all_turns, all_many = (figures.scale("channels", "all_alternating", count) for count in (16, 10_000))
    source = figures.value("sources", "source_bytes", "bccnd", 100_000)
    sources_mb = f"«{source * 100_000 / 1e6:.0f}» MB"
    client = f"«{figures.client('client_kib'):.0f}» KiB"
    shares = [
        figures.scale("direct", "bccnd_own", count) / figures.scale("direct", "listeners", count) for count in (8, 64)
    ]
    burst = two_digits(figures.value("burst", "held", "bccnd", 150) * CHARGED_150 / CHARGED_NIC)
    more_idle = figures.idle("core", 100_000) - figures.idle("core")
    idle_many = f"«{figures.idle('resident_mb', 100_000):.0f}»"
    idle = f"«{percent(figures.idle('core'), 2)}»"
    resident = f"«{figures.idle('resident_mb'):.0f}»"
    lower = 1 - min(
        cpu(case, clients) / figures.scale("clients", case, clients)
        for case in ("bccnd", "bccnd_batch")
        for clients in FAN_OUTS
    )
    return {
        "README.md": [
            (
                f"bccnd {three(figures, 'bccnd')} (batch mode {three(figures, 'bccnd_batch')}), NATS "
                f"{three(figures, 'nats')}, Redis {three(figures, 'redis')} ([comparison]"
            ),
        ],
        "comparison.md": [
            *rows(figures),
            (
                f"These figures are of «{about['date']}», from a virtual «{about['machine']['cpu']}» with "
                f"«{about['machine']['cores']}» cores: medians of «{about['rounds']}» interleaved rounds"
            ),
            (
                f"it takes the daemon «{us(quiet)}» us instead of «{us(cpu('bccnd', 1))}», as it is woken for each: "
                f"«{core}» of a core. "
                f"Redis took «{us(cpu('redis', 1, 'paced'))}» us"
            ),
            f"NATS and Redis take less**: «{nats}» of it to one client, «{nats_64}» and «{redis_64}» to 64.",
            f"(scaling.md#what-one-core-carries): at least «{at_1}» messages a second to one program, «{at_64}» to 64.",
            f"to 64 it takes «{fraction(cpu('bccnd_batch', 64) / cpu('redis', 64))}» of Redis.",
            (
                f"the daemon and the clients take «{percent(shares[0])}» of what N programs without a daemon take at "
                f"8, and «{percent(shares[1])}» at 64 ([scaling]"
            ),
            f"| a daemon: {resident} MB when idle, and CPU",
        ],
        "questions.md": [
            (
                f"carries at least «{at_1}» messages of 150 bytes a second to one program, «{at_8}» to 8 and "
                f"«{at_64}» to 64, or «{batch_64}» to 64 in batch mode"
            ),
            f"At full load NATS takes «{nats}» of the CPU for one program, «{nats_64}» for 64.",
            (
                f"the daemon takes «{core}» of a core, like Redis; the median latency is "
                f"«{thousands(figures.latency('bccnd', 1))}» us."
            ),
            f"- idle: {idle} of a core ([measured](scaling.md#limits-of-these-figures)), {resident} MB",
            (
                f"with 10,000 a message takes «{us(many - turns)}» us more, with 64 programs that get all "
                f"«{percent(all_many / all_turns - 1)}» more"
            ),
            (f"[some {sources_mb}](scaling.md#sources) and «{percent(more_idle, 1)}» of a core more"),
            f": {client} each, and a [queue]",
            f"no program wants: «{unwanted}» us for each datagram:",
        ],
        "scaling.md": [
            f"Times of a later version are up to «{percent(lower)}» lower than here",
            f"that takes about «{unwanted}» us in the daemon",
            f"`b` is one send to the kernel («{us(slope)}» us here)",
            f"`b` some «{two_digits(slope / figures.client('batch_each_ns'))}» times smaller.",
            f"A source takes some «{two_digits(source)}» bytes, a client that reads its messages {client}.",
            f"not used lately costs some «{us(many - turns)}» us more.",
            f"So 100,000 sources add some {sources_mb} to the daemon.",
            (
                f"at 2,000 a second [«{times(quiet / cpu('bccnd', 1))}» times as long](comparison.md#cpu-per-message) "
                f"for one client, which is «{core}» of a core in all."
            ),
            f"64 MiB then hold some «{burst}» datagrams of any size",
            (
                f"took {idle} of a core in three minutes, and «{percent(figures.idle('core', 100_000), 2)}» "
                f"with 100,000 sources known; it had {resident} and {idle_many} MB resident "
                f"(«{figures.about('idle')['date']}»;"
            ),
        ],
        "systemd.md": [f"than the socket holds, some «{burst}»."],
        "operations.md": [
            f"64 MiB hold some «{burst}» datagrams",
            f"some {sources_mb} for 100,000 ([scaling](scaling.md#sources))",
        ],
    }


def fill(name: str, text: str, wanted: list[str]) -> str:
    """Return a page with the figures of its quotes in it. Raises ValueError if a quote is not in it exactly once."""
    for quote in wanted:
        parts = _FIGURE.split(quote)
        pattern = "".join(
            r"([^|]{1,60}?)" if number % 2 else re.sub(r"(?:\\ )+", r"\\s+", re.escape(part))
            for number, part in enumerate(parts)
        )
        found = list(re.finditer(pattern, text))
        if len(found) != 1:
            raise ValueError(f"{name} holds this {len(found)} times, and must hold it once: {quote}")
        for number in range(len(parts) // 2, 0, -1):
            begin, end = found[0].span(number)
            value = parts[2 * number - 1]
            # A line break within a figure stays.
            if text[begin:end].split() != value.split():
                text = text[:begin] + value + text[end:]
    return text


def filled(name: str, text: str) -> str:
    """Return a page with the figures as they are now."""
    return fill(name, text, quotes(Figures()).get(name, []))
