"""What to look at first, and why: facts -> findings, ranked.

Law: pure. A finding names one thing that is wrong, gives the figures that show it, the likely cause and what to do; a
fleet in which nothing is wrong gives none. What rests on few messages or on chance is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median
from typing import Final, NamedTuple

from bccnd.pipeline.report import blame, lives, words
from bccnd.pipeline.report.facts import Clock, Course, Facts, Link, Refusals, by_sending_host, sending_host
from bccnd.pipeline.report.finding import LOOK, NOTE, URGENT, Finding

#: loss from here on is urgent: one message in twenty
HEAVY: Final = 0.05
#: clocks that differ by less are well kept, in microseconds
CLOCK: Final = 100_000
#: and from here on, nothing that compares times of two hosts can be believed
CLOCK_BAD: Final = 1_000_000
#: part of what was due during which a host was not recording that is worth a word
ABSENT: Final = 0.02
#: extra copies for each message from which on a sender is taken to send everything twice
TWICE: Final = 0.5
#: what two copies cannot give
THRICE: Final = 1.05
#: loss that copies must make good at a host to be worth a word: one message in a hundred
HELPS: Final = 0.01
#: loss that comes together: this part of it in at most that part of the period
MOST: Final = 0.9
BRIEF: Final = 0.25
#: messages in a minute below which nothing floods
FLOOD: Final = 600
#: and how many times those of a usual channel
FLOOD_TIMES: Final = 10
#: channels of heartbeats are no measure of usual traffic
HEARTBEAT: Final = "heartbeat/"

#: kinds in the order in which they are told, where they are as urgent as each other
KINDS: Final = (
    "forged",
    "segment",
    "host_down",
    "died",
    "sender",
    "receiver",
    "link",
    "flood",
    "restarts",
    "jump",
    "clock",
    "late",
    "silent",
    "copies",
    "twice",
    "unknown",
    "not_recording",
    "left",
)


def findings(facts: Facts) -> list[Finding]:
    """All there is to tell, the first thing to look at first."""
    found: list[Finding] = []
    for look in _LOOKS:
        found.extend(look(facts))
    return sorted(found, key=lambda one: (one.severity, KINDS.index(one.kind), -one.weight, one.about))


def health(facts: Facts, found: Sequence[Finding]) -> tuple[int, str]:
    """How the fleet is, as a severity (3: well) and in one sentence."""
    urgent = [one for one in found if one.severity == URGENT]
    look = [one for one in found if one.severity == LOOK]
    loss = f"{words.share(facts.lost / facts.due)} of what should have arrived was lost" if facts.due else ""
    if urgent:
        rest = len(urgent) + len(look) - 1
        more = f"; {words.some(rest, 'more thing')} to look at" if rest else ""
        return URGENT, f"Needs attention: {_lowered(urgent[0].title)}{more}."
    if look:
        return LOOK, f"It works, with {words.some(len(look), 'thing')} to look at" + (f"; {loss}." if loss else ".")
    if not facts.due:
        return NOTE, "Nothing can be said about loss: no numbered messages were seen."
    return 3, f"All is well: {loss}, which is nothing to act on." if facts.lost else "All is well: nothing was lost."


def _lowered(title: str) -> str:
    """A title in the middle of a sentence: what begins with a plain word does so small."""
    first = title.split(" ", 1)[0]
    return title[0].lower() + title[1:] if first in ("All", "Somebody", "Nobody", "One", "What", "Messages") else title


# -- loss


def _severity(rate: float) -> int:
    return URGENT if rate >= HEAVY else LOOK


def together(course: Course | None, facts: Facts) -> tuple[int, int] | None:
    """The short time in which nearly all was lost, if there is one."""
    if course is None or len(course.lost) < 4:
        return None
    whole = sum(course.lost)
    need = MOST * whole
    best: tuple[int, int] | None = None
    first, held = 0, 0
    for last, lost in enumerate(course.lost):
        held += lost
        while held - course.lost[first] >= need:
            held -= course.lost[first]
            first += 1
        if held >= need and (best is None or last - first < best[1] - best[0]):
            best = first, last
    if not whole or best is None or best[1] - best[0] + 1 > BRIEF * len(course.lost):
        return None
    return facts.start + best[0] * facts.step, min(facts.start + (best[1] + 1) * facts.step, facts.end)


def _deaf(course: Course | None, facts: Facts) -> tuple[int, int] | None:
    """The time in which a receiver missed everything, if that is when nearly all its loss came."""
    brief = together(course, facts)
    if brief is None or course is None:
        return None
    steps = range((brief[0] - facts.start) // facts.step, -(-(brief[1] - facts.start) // facts.step))
    due, lost = sum(course.due[step] for step in steps), sum(course.lost[step] for step in steps)
    return brief if lost >= MOST * due else None


def _when(course: Course | None, facts: Facts) -> str:
    brief = together(course, facts)
    if brief is None:
        return ""
    first, last = (words.when(at, facts.period) for at in brief)
    return f" Nearly all of it between {first} and {last} UTC."


def _mostly(links: Iterable[Link], sender: str, host: str | None = None) -> str:
    """The one program of a host that the loss is about, if it is one of several."""
    lost: dict[str, int] = {}
    for link in links:
        if sending_host(link.sender) == sender and not link.own and host in (None, link.host):
            lost[link.sender] = lost.get(link.sender, 0) + link.lost
    whole = sum(lost.values())
    worst = max(lost, key=lambda one: lost[one], default="")
    if len(lost) < 2 or not whole or lost[worst] < MOST * whole:
        return ""
    return f" Nearly all of it was sent by {words.plain(worst)}."


def _losses(facts: Facts) -> Iterator[Finding]:
    verdict = blame.judge(by_sending_host(facts.links))
    if verdict.segment is not None:
        yield _segment(verdict.segment, facts)
    for one in verdict.receivers:
        yield _receiver(one, facts, verdict.alone)
    yield from _senders(verdict, facts)
    for one in verdict.pairs:
        yield _link(one, facts, verdict.alone)


def _figures(one: blame.Blame) -> str:
    return f"{words.share(one.rate)} ({words.about(one.lost)} of {words.about(one.due)} messages)"


def _segment(one: blame.Blame, facts: Facts) -> Finding:
    course = _sum(facts.receivers.values())
    return Finding(
        "segment",
        _severity(one.rate),
        (),
        "All hosts lose messages of all others",
        f"{one.partners} of {one.among} pairs of hosts lost some: {_figures(one)}.{_when(course, facts)}",
        "The segment itself: more traffic than it can take, a faulty or overloaded switch, a radio link.",
        "Look at the busiest channels and at the switch's counters of drops; what must arrive can be sent twice "
        "(repeat).",
        one.lost,
    )


def _sum(courses: Iterable[Course]) -> Course | None:
    every = list(courses)
    if not every:
        return None
    return Course(
        *(
            tuple(map(sum, zip(*part, strict=True)))
            for part in zip(*((c.due, c.lost, c.absent) for c in every), strict=True)
        )
    )


def _only(alone: bool) -> str:
    return " Only one host has recorded these messages, so sender and receiver cannot be told apart." if alone else ""


def _receiver(one: blame.Blame, facts: Facts, alone: frozenset[str]) -> Finding:
    host = words.plain(one.host or "")
    lonely = all(link.sender in alone for link in by_sending_host(facts.links) if link.host == one.host)
    others = f"; the other hosts missed {words.share(one.elsewhere)}" if not lonely else ""
    whom = "everybody" if one.partners > one.among // 2 else "several hosts"
    course = facts.receivers.get(one.host or "")
    deaf = _deaf(course, facts)
    title = f"{host} misses messages of {whom}"
    if deaf is not None:
        title = f"{host} heard next to nothing from {' to '.join(words.when(at, facts.period) for at in deaf)}"
    return Finding(
        "receiver",
        _severity(one.rate),
        (one.host or "",),
        title,
        f"It missed {_figures(one)}, from {one.partners} of {one.among} sending hosts{others}.{_when(course, facts)}",
        f"{host} itself: its cable, network card or switch port, or the daemon there is not fast enough for bursts."
        f"{_only(lonely)}",
        f"On {host}, see whether bccnd_socket_drops_total has risen: then raise segments.receive_buffer; "
        "if it has not, look at the cable and the port.",
        one.lost,
    )


def _senders(verdict: blame.Verdict, facts: Facts) -> Iterator[Finding]:
    missed = {one.sender or "": one for one in verdict.senders}
    unsent = {one.sender: one for one in verdict.unsent}
    for sender in sorted({*missed, *unsent}):
        parts = []
        rate, lost = 0.0, 0
        if sender in missed:
            one = missed[sender]
            rate, lost = one.rate, one.lost
            parts.append(
                f"{one.partners} of {one.among} other hosts missed some of it: {_figures(one)}; "
                f"of all other senders {words.share(one.elsewhere)}"
            )
        if sender in unsent:
            gone = unsent[sender]
            rate, lost = max(rate, gone.lost / gone.expected), max(lost, gone.lost)
            parts.append(
                f"{words.some(gone.lost, 'message')} of {words.about(gone.expected)} "
                f"({words.share(gone.lost / gone.expected)}) reached no host at all"
            )
        name = words.plain(sender)
        yield Finding(
            "sender",
            _severity(rate),
            (sender,),
            f"What {name} sends is lost by everybody",
            f"{_sentence('. '.join(_capital(part) for part in parts))}"
            f"{_when(facts.sending.get(sender), facts)}{_mostly(facts.links, sender)}",
            f"{name} or its way to the switch: its cable, network card or port, or it sends faster than these take.",
            f"On {name}, look at bccnd_send_errors_total, the card's counters and the port; if bursts are the reason, "
            "spread them.",
            lost,
        )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


def _link(one: blame.Blame, facts: Facts, alone: frozenset[str]) -> Finding:
    host, sender = words.plain(one.host or ""), words.plain(one.sender or "")
    lonely = one.sender in alone
    course = facts.receivers.get(one.host or "")
    if course is not None and one.lost < MOST * sum(course.lost):
        course = None  # what it shows is mostly about others
    return Finding(
        "link",
        _severity(one.rate),
        (one.host or "", one.sender or ""),
        f"{host} misses messages of {sender}",
        f"{_figures(one)}; between all other hosts {words.share(one.elsewhere)}.{_when(course, facts)}"
        f"{_mostly(facts.links, one.sender or '', one.host)}",
        f"The way between these two: a cable between switches, a filter, or bursts of {sender} that {host} does not "
        f"take in time.{_only(lonely)}",
        f"Ask what lies between {sender} and {host} and nowhere else.",
        one.lost,
    )


def _late(facts: Facts) -> Iterator[Finding]:
    seen = sum(link.seen for link in facts.links)
    late = sum(link.late for link in facts.links)
    if late < blame.FEW or late < blame.WORTH * seen:
        return
    by_host: dict[str, int] = {}
    for link in facts.links:
        by_host[link.host] = by_host.get(link.host, 0) + link.late
    worst = [host for host, count in sorted(by_host.items(), key=lambda one: -one[1]) if count]
    yield Finding(
        "late",
        LOOK,
        tuple(worst[:3]),
        "Messages arrive too late and are not delivered",
        f"{words.some(late, 'message')} ({words.share(late / seen)} of what arrived) came behind later ones of the "
        f"same sender and were dropped, most of them at {words.listing([words.plain(host) for host in worst])}.",
        "Two ways between the hosts that take differently long, or copies that are sent some time apart.",
        "Let the daemons deliver them: dedup.late: deliver.",
        late,
    )


# -- copies


def _copies(facts: Facts) -> Iterator[Finding]:
    """Receivers that get everything twice, though others do not."""
    sums: dict[str, list[int]] = {}
    for link in facts.links:
        if not link.own:
            row = sums.setdefault(link.host, [0, 0])
            row[0] += link.seen
            row[1] += link.dup
    rates = {host: dup / seen for host, (seen, dup) in sums.items() if seen >= blame.THIN}
    if len(rates) < 2:
        return
    usual = median(rates.values())
    for host, rate in sorted(rates.items()):
        if rate >= TWICE and usual < TWICE / 5:
            yield Finding(
                "copies",
                LOOK,
                (host,),
                f"{words.plain(host)} receives everything twice",
                f"{words.share(rate)} of its messages came a second time; at other hosts {words.share(usual)}.",
                "The same network reaches it in two ways: two cards on one segment, or a loop between switches.",
                f"Look at the interfaces of {words.plain(host)} and at what they are connected to.",
                sums[host][1],
            )


def _twice(facts: Facts) -> Iterator[Finding]:
    """Does sending twice pay? The part of messages that came twice tells how many single copies are lost."""
    sums: dict[str, dict[str, Link]] = {}
    for link in facts.links:
        if not link.own and link.seen >= blame.THIN:
            sums.setdefault(link.sender, {})[link.host] = link
    senders = sorted(
        sender
        for sender, links in sums.items()
        if TWICE <= sum(one.dup for one in links.values()) / sum(one.seen for one in links.values()) <= THRICE
    )
    if not senders or any(_copies(facts)):
        return
    # At each host: what part of single copies is lost there, and what part of messages.
    rates: dict[str, tuple[float, float]] = {}
    for host in facts.hosts:
        links = [sums[sender][host] for sender in senders if host in sums[sender]]
        seen, due = sum(one.seen for one in links), sum(one.due for one in links)
        if seen and due:
            again = min(sum(one.dup for one in links) / seen, 1.0)
            rates[host] = (1 - again) / (1 + again), sum(one.lost for one in links) / due
    single, now = (median(rate[place] for rate in rates.values()) for place in range(2))
    helped = [host for host, rate in sorted(rates.items()) if rate[0] - rate[1] >= HELPS]
    names = words.listing([words.plain(name) for name in senders])
    where = ""
    if single < blame.WORTH and helped:
        hosts = words.listing([words.plain(host) for host in helped])
        title, cause = f"Sending twice helps {names} only at {hosts}", "Elsewhere next to nothing is lost on the way."
        remedy = f"Mend what is wrong at {hosts}; then the copies are not needed (repeat)."
        most = max(helped, key=lambda host: rates[host])
        where = f" At {words.plain(most)}: {words.share(rates[most][0])} and {words.share(rates[most][1])}."
    elif single < blame.WORTH:
        title, cause = f"Sending twice does not pay for {names}", "Next to nothing is lost on the way."
        remedy = "Unless these messages must not be lost at all, take the rule out of repeat: it doubles the traffic."
    elif now > single / 2:
        title, cause = f"Sending twice hardly helps {names}", "Both copies are lost together: losses come in bursts."
        remedy = (
            "Send the copies further apart (repeat.spacing), and let receivers take late ones (dedup.late: deliver)."
        )
    else:
        title, cause = f"Sending twice pays for {names}", "Losses hit single copies, and the other one arrives."
        remedy = "Nothing to do; without the copies the loss would be as large as that of single ones."
    yield Finding(
        "twice",
        NOTE,
        tuple(senders),
        title,
        f"{names} {'sends' if len(senders) == 1 else 'send'} everything twice. At a usual host, "
        f"{words.share(single)} of single copies and {words.share(now)} of messages are lost.{where}",
        cause,
        remedy,
        float(len(senders)),
    )


# -- the rest


def _forged(facts: Facts) -> Iterator[Finding]:
    for one in facts.refusals:
        told = _REFUSED.get(one.verdict)
        if told is None or one.datagrams < told.least:
            continue
        peer = words.plain(one.peer) or "an unknown address"
        claimed = f", in the name of {_claimed(one)}" if one.names else ""
        yield Finding(
            told.kind,
            told.severity,
            (one.peer,),
            told.title.format(peer=peer),
            f"{words.some(one.datagrams, 'datagram')} refused by {words.some(one.hosts, 'host')} between "
            f"{words.when(one.first, facts.period)} and {words.when(one.last, facts.period)} UTC{claimed}.",
            told.cause,
            told.remedy.format(peer=peer),
            one.datagrams,
        )


def _claimed(one: Refusals) -> str:
    shown = [words.plain(name) for name in one.claimed]
    return words.listing([*shown, *[""] * (one.names - len(shown))]) if one.names > len(shown) else words.listing(shown)


class _Refused(NamedTuple):
    kind: str
    severity: int
    least: int
    title: str
    cause: str
    remedy: str


_BROKEN: Final = _Refused(
    "unknown",
    NOTE,
    blame.FEW,
    "{peer} sends datagrams that nobody can read",
    "A program that does not speak this protocol, or speaks it wrongly.",
    "Find the program on {peer}; bccn tap --refused shows what it sends.",
)
_REFUSED: Final = {
    "integrity_failed": _Refused(
        "forged",
        URGENT,
        1,
        "Somebody at {peer} signs with a wrong key",
        "Somebody who does not have the key speaks in the name of others, or a host there still has an old key.",
        "Find out who has the address {peer}. If it is a host of yours, give it the key of the others.",
    ),
    "replayed": _Refused(
        "forged",
        URGENT,
        blame.FEW,
        "Somebody at {peer} sends old messages again",
        "Recorded messages are played back, or a sender has numbered from an earlier number on.",
        "Find out who has the address {peer} and what it runs.",
    ),
    "integrity_missing": _Refused(
        "forged",
        LOOK,
        blame.FEW,
        "{peer} sends without a signature",
        "A program that was not set up to sign, or somebody who has no key.",
        "Give it a key, or take it off the segment.",
    ),
    "integrity_unknown": _Refused(
        "forged",
        LOOK,
        blame.FEW,
        "{peer} signs in a way that nobody here can check",
        "Another algorithm or key than the receivers have: a change of keys that is not finished.",
        "Give the receivers its key, or it theirs.",
    ),
    **dict.fromkeys(
        (
            *("bad_envelope", "length_mismatch", "unsupported_version", "oversize"),
            *("bad_body", "bad_src", "bad_seq", "bad_channel", "bad_target"),
        ),
        _BROKEN,
    ),
}


def _floods(facts: Facts) -> Iterator[Finding]:
    channels = [one for one in facts.channels if not one.name.startswith(HEARTBEAT)]
    whole = facts.all_messages or sum(one.messages for one in facts.channels)
    minutes = max(facts.period / words.MINUTE, 1)
    for one in channels:
        others = [other.peak for other in channels if other is not one]
        if len(others) < 3 or one.peak < FLOOD or one.peak < FLOOD_TIMES * median(others):
            continue
        most, burst = one.messages >= whole / 2, one.peak >= one.messages / minutes * 5
        if not (most or burst):
            continue
        name = words.plain(one.name)
        yield Finding(
            "flood",
            LOOK,
            (one.name,),
            f"Channel {words.shortened(one.name, 60)} floods",
            f"{words.some(one.messages, 'message')}, {words.share(one.messages / whole)} of all; "
            f"{words.rate(one.peak / 60)} in its busiest minute, where a usual channel has "
            f"{words.rate(median(others) / 60)}. {words.share(one.busiest_messages / one.messages)} came from "
            f"{words.plain(one.busiest)}.",
            "A program in a loop, or one that sends far more than others need.",
            f"Ask whoever runs {words.plain(one.busiest)}; bccn sub '{name}' shows what it says.",
            one.messages,
        )


def _clocks(facts: Facts) -> Iterator[Finding]:
    for group in _by_reference(facts.clocks):
        against = group[0].against
        offsets = {one.host: one.middle for one in group}
        offsets.setdefault(against, 0)
        middle = round(median(offsets.values())) if len(offsets) > 2 else 0
        for host, offset in sorted(offsets.items()):
            off = offset - middle
            if abs(off) < CLOCK:
                continue
            name = words.plain(host)
            yield Finding(
                "clock",
                LOOK if abs(off) >= CLOCK_BAD else NOTE,
                (host,),
                f"The clock of {name} is {words.duration(abs(off))} {'ahead' if off > 0 else 'behind'}",
                f"Compared by the arrival of the same messages with {words.some(len(offsets) - 1, 'other host')}.",
                "Its clock is not kept by a time service.",
                f"Turn time synchronisation on at {name}; timedatectl shows whether it works.",
                float(abs(off)),
            )


def _by_reference(clocks: Iterable[Clock]) -> list[list[Clock]]:
    groups: dict[str, list[Clock]] = {}
    for one in clocks:
        groups.setdefault(one.against, []).append(one)
    return list(groups.values())


def _not_recording(facts: Facts) -> Iterator[Finding]:
    for host in facts.hosts:
        links = [link for link in facts.links if link.host == host and not link.own]
        expected, absent = sum(link.expected for link in links), sum(link.not_listening for link in links)
        if absent < blame.FEW or absent < ABSENT * expected:
            continue
        if _was_down(host, facts):
            continue
        name = words.plain(host)
        yield Finding(
            "not_recording",
            NOTE,
            (host,),
            f"{name} was not recording all the time",
            f"{words.share(absent / expected)} of the messages ({words.about(absent)}) came while it was not recording"
            f"{_gone(facts.receivers.get(host), facts)}. They are not counted as lost.",
            "The recorder was started later, was stopped, or its disk was full.",
            f"On {name}, see when the recorder ran.",
            absent,
        )


def _was_down(host: str, facts: Facts) -> bool:
    """Whether a host was not recording because it was down, which is told already."""
    course = facts.receivers.get(host)
    times = [
        (one.start - lives.TOGETHER, (facts.end if one.end is None else one.end) + lives.TOGETHER)
        for one in facts.silences
        if one.host is None and one.kind == "host_down" and sending_host(one.src) == host
    ]
    if course is None or not times:
        return False
    steps = [facts.start + step * facts.step for step, absent in enumerate(course.absent) if absent]
    return all(any(start <= at <= end for start, end in times) for at in steps)


def _gone(course: Course | None, facts: Facts) -> str:
    if course is None:
        return ""
    steps = [place for place, absent in enumerate(course.absent) if absent]
    if not steps or len(steps) != steps[-1] - steps[0] + 1:
        return ""
    first = words.when(facts.start + steps[0] * facts.step, facts.period)
    last = words.when(min(facts.start + (steps[-1] + 1) * facts.step, facts.end), facts.period)
    return f", between {first} and {last} UTC"


_LOOKS: Final[tuple[Callable[[Facts], Iterable[Finding]], ...]] = (
    _losses,
    _late,
    _copies,
    _twice,
    *lives.LOOKS,
    _forged,
    _floods,
    _clocks,
    _not_recording,
)
