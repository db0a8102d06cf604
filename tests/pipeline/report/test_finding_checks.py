"""Findings of the report: each fault alone gives one finding; a healthy fleet gives none."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd.fleet import attribution
from bccnd.pipeline.report.facts import (
    Channel,
    Clock,
    Course,
    Facts,
    Link,
    MissingRecords,
    Recording,
    Refusals,
    Silence,
    Start,
    Unordered,
    UnusableFile,
    by_sending_host,
    sending_host,
)
from bccnd.pipeline.report.finding_checks import run_checks
from bccnd.pipeline.report.findings import SEVERITIES, URGENT, health
from tests.pipeline.reporting import HOUR, MINUTE, START, spaced
from tests.support import examples

HOSTS = tuple(f"h{number:02d}" for number in range(1, 9))
SENDERS = tuple(f"{host}/app" for host in HOSTS)
EACH = 3600

Lost = Callable[[str, str], int]


def link(host: str, sender: str, lost: int = 0, unsent: int = 0, absent: int = 0, sent: int = EACH) -> Link:
    own = sending_host(sender) == host
    lost = 0 if own else lost
    any_seen = sent - unsent
    return Link(host, sender, sent, any_seen, any_seen - lost - absent, lost, unsent, absent, 0, 0)


def fleet(
    lost: Lost = lambda host, sender: 0,
    unsent: Callable[[str], int] = lambda sender: 0,
    hosts: tuple[str, ...] = HOSTS,
    senders: tuple[str, ...] = SENDERS,
) -> Facts:
    """An hour of a fleet in which every program sends to every host, one message a second."""
    links = tuple(link(host, sender, lost(host, sender), unsent(sender)) for host in hosts for sender in senders)
    channels = tuple(Channel(f"data/{name}", EACH, EACH * 100, 120, 60, name, EACH) for name in senders)
    messages = EACH * len(senders)
    facts = Facts(START, START + HOUR, MINUTE, hosts, links)
    return replace(facts, channels=channels, messages=messages)


def course(lost: Callable[[int], int], due: int = 100) -> Course:
    return Course((due,) * 60, tuple(lost(step) for step in range(60)), (0,) * 60)


def findings(facts: Facts) -> list[str]:
    """The findings in their order, each as its severity, its kind, and the names that it is about."""
    return [" ".join((SEVERITIES[one.severity], one.kind, *one.about)) for one in run_checks(facts)]


def silence(src: str, start: float, end: float | None, kind: str, basis: str = "heartbeat") -> Silence:
    """A silence for all receivers, from and to so many minutes after the start."""
    until = None if end is None else START + round(end * MINUTE)
    return Silence(src, START + round(start * MINUTE), until, kind, basis)


FLEET = fleet()


def but(**changes: Any) -> Facts:
    """A fleet that is well but for this."""
    return replace(FLEET, **changes)


def silent(*silences: Silence) -> Facts:
    return but(silences=silences)


def starts(restarts: int, masked: int = 0, cause: str = "restart") -> tuple[Start, ...]:
    causes = enumerate([cause] * restarts + ["masked"] * masked)
    return tuple(Start("h06/app", START + n * MINUTE, why) for n, why in causes)


def refused(verdict: str, datagrams: int = 500) -> Facts:
    refusals = Refusals("192.0.2.66", verdict, datagrams, 8, ["h01/app/7"], 1, START + MINUTE, START + 2 * MINUTE)
    return but(refusals=(refusals,))


def clocks(**ahead: int) -> Facts:
    """How far clocks are ahead of that of h01, in microseconds; 300 by default."""
    compared = tuple(Clock(host, "h01", 0, ahead.get(host, ahead.get("all", 300)), 0, 1000) for host in HOSTS[1:])
    return but(clocks=compared)


def absent(host: str, messages: int, course: Course) -> Facts:
    links = (
        link(receiver, sender, absent=messages if receiver == host else 0) for receiver in HOSTS for sender in SENDERS
    )
    return but(links=tuple(links), receivers={host: course})


SKIPPED = starts(2, cause="jump")[1]._replace(skipped=5000)
FLOOD = Channel("alarm/all", 50_000, 5_000_000, 120, 6000, "h03/app", 49_000)
NOT_RECORDING = Course((100,) * 60, (0,) * 60, (100,) * 20 + (0,) * 40)
REACH = replace(
    absent("h04", 2400, NOT_RECORDING), recordings=(Recording("h04", START, START + 20 * MINUTE, "1", 0, 0),)
)
DOWN = Course((100,) * 60, (0,) * 60, (0,) * 20 + (100,) * 10 + (0,) * 30)
DEAD = silence("h02/app", 41, None, "open")
IN_A_ROW = [silence(f"h02/{name}", 10 + n / MINUTE, 15, "host_down") for n, name in enumerate("abc")]
OFF = tuple(silence(f"h04/{name}", 20, 30, "host_down", "any") for name in "ab")
TWICE = tuple(pair._replace(dup=EACH * (pair.host == "h07" and not pair.own)) for pair in FLEET.links)
LATE = tuple(pair._replace(late=40 * (pair.host == "h02")) for pair in FLEET.links)
FLOODED = but(channels=(FLOOD, *FLEET.channels), messages=FLEET.messages + 50_000)
HOLES = (
    MissingRecords("h02", "j", 12_000, 14_999, START + MINUTE, START + 2 * MINUTE),
    MissingRecords("h02", "k", 5, 5, START, None),
)
BAD = UnusableFile("h02", "obs/a", "torn")
BUSY = tuple(channel._replace(messages=400_000, peak=9000) for channel in FLEET.channels)


def with_copies(dup: int, lost: int) -> Facts:
    """Every message is sent twice; ``dup`` copies of each link arrive, and so many messages are lost."""
    links = (link(pair.host, pair.program, lost)._replace(dup=0 if pair.own else dup) for pair in FLEET.links)
    return but(links=tuple(links))


def several(host: str, sender: str) -> int:
    """A receiver, a sender and a pair of hosts that lose, and everything by chance."""
    if host == "h01":
        return 300
    if sending_host(sender) == "h02":
        return 90
    return 500 if (host, sending_host(sender)) == ("h04", "h05") else 1


def few(hosts: Sequence[str], links: Sequence[Link]) -> Facts:
    return replace(fleet(hosts=tuple(hosts)), links=tuple(links))


def lossy(seed: int, least: int, chance: int) -> Facts:
    dice = random.Random(seed)
    return fleet(lambda host, sender: least + dice.randrange(chance))


def one_host(*bad: int) -> Facts:
    """The only host that records receives four programs, of which these lose."""
    return few(("h01",), [link("h01", f"s{number}/app", unsent=200 * (number in bad)) for number in range(4)])


def receiver(lost: int, **changes: Any) -> Facts:
    return replace(fleet(lambda host, sender: lost if host == "h03" else 0), **changes)


def sender(lost: int) -> Facts:
    return fleet(lambda host, sender: lost if sender.startswith("h03/") else 0)


CAMERA = fleet(lambda host, sender: 100 if sender == "h03/camera" else 0, senders=(*SENDERS, "h03/camera"))
TOGETHER = receiver(300, receivers={"h03": course(lambda step: 100 if 20 <= step < 25 else 0)})
#: two receivers that lose a tenth each lose a hundredth together
TENTH = [Link(host, f"s{n}/app", 10_000, 9_900, 9_000, 900, 100, 0, 0, 0) for host in ("h01", "h02") for n in range(4)]
THREE = fleet(lambda host, sender: 200 if host == "h03" and sending_host(sender) in HOSTS[4:7] else 0)
DOWN_TWICE = [(name, *span) for span in ((10, 12), (40, None)) for name in "ab"]
AGAIN = silent(*(silence(f"h02/{name}", start, end, "host_down") for name, start, end in DOWN_TWICE))

#: facts, the findings, and figures in their texts
CASES: list[tuple[Facts, list[str], tuple[str, ...]]] = [
    (fleet(), [], ()),
    (lossy(1, 0, 3), [], ()),
    # the cause of loss
    (receiver(8), ["look receiver h03"], ("7 of 7",)),
    (receiver(400), ["urgent receiver h03"], ("7 of 7",)),
    (sender(8), ["look sender h03"], ("7 of 7",)),
    (sender(3600), ["urgent sender h03"], ("7 of 7",)),
    (lossy(2, 20, 5), ["look segment"], ()),
    (lossy(2, 180, 45), ["urgent segment"], ()),
    (fleet(unsent=lambda sender: 72 * sender.startswith("h05/")), ["look sender h05"], ("72", "3,600 (2.0 %)")),
    (CAMERA, ["look sender h03"], ("h03/camera",)),
    (fleet(several), ["urgent receiver h01", "urgent link h04 h05", "look sender h02"], ()),
    (fleet(lambda host, sender: 900 if host == "h07" else 72), ["urgent receiver h07", "look segment"], ()),
    (THREE, ["look receiver h03"], ()),
    (few(("h01", "h02"), TENTH), ["urgent segment"], ()),
    # one host that records cannot tell sender from receiver
    (one_host(0, 1, 2, 3), ["urgent receiver h01"], ("cannot be distinguished",)),
    (one_host(2), ["urgent link h01 s2"], ("cannot be distinguished",)),
    (TOGETHER, ["urgent receiver h03"], ("10:20 to 10:25",)),
    # everything else
    (absent("h04", 1200, NOT_RECORDING), ["note not_recording h04"], ("10:00 and 10:20",)),
    (REACH, ["note not_recording h04"], ("data ends at 10:20",)),
    (replace(absent("h04", 600, DOWN), silences=OFF), ["look host_down h04"], ("10 min",)),
    (silent(DEAD), ["urgent died h02/app"], ("10:41",)),
    (silent(silence("h02/app", 10, 15, "gap")), ["look silent h02/app"], ("5 min",)),
    (silent(*(silence(src, 1, None, "open", "any") for src in SENDERS[:2])), ["note left h01/app h02/app"], ()),
    (silent(*IN_A_ROW), ["look host_down h02"], ("5 min",)),
    (AGAIN, ["urgent host_down h02", "look host_down h02"], ()),
    (but(starts=starts(5, 2)), ["look restarts h06/app"], ("7 times in 60", "2 restarts")),
    (but(starts=(SKIPPED,)), ["look jump h06/app"], ("5,000", "10:01")),
    (but(unordered=(Unordered("h06/rnd", 2, START),)), ["look unordered h06/rnd"], ("2 of",)),
    (but(missing=HOLES), ["look missing h02"], ("3,001", "12,000 to 14,999", "10:01 and 21 Nov 10:02")),
    (but(missing=HOLES[1:]), ["look missing h02"], ("1 record of",)),
    (but(unusable=(BAD, BAD._replace(host="h03"))), ["look damaged h02 h03"], ("2 files", "obs/a: torn")),
    (but(unusable=(BAD._replace(host=""),)), ["look damaged"], ("1 file of",)),
    (but(unusable=(BAD._replace(why="unknown clock: 1970"),)), ["look unknown_clock h02"], ("1 file of h02",)),
    (refused("integrity_failed"), ["urgent forged 192.0.2.66"], ("500 datagrams", "8 hosts")),
    (refused("integrity_failed", 1), ["urgent forged 192.0.2.66"], ()),
    (refused("replayed"), ["urgent forged 192.0.2.66"], ()),
    *((refused(f"integrity_{why}"), ["look forged 192.0.2.66"], ()) for why in ("missing", "unknown")),
    (refused("length_mismatch"), ["note unknown 192.0.2.66"], ()),
    (FLOODED, ["look flood alarm/all"], ("98 %", "h03/app")),
    (clocks(h05=2_500_000), ["look clock h05"], ("2.5 s ahead",)),
    (clocks(all=-2_500_000), ["look clock h01"], ("2.5 s ahead",)),
    (but(links=TWICE), ["look copies h07"], ()),
    (but(links=LATE), ["look late h02"], ("dedup.late: deliver",)),
    (with_copies(EACH, 0), [f"note twice {' '.join(SENDERS)}"], ()),
    # a tenth of the copies lost: of those that arrive, 0.81 / 0.99 arrive twice, and a hundredth is lost
    (
        with_copies(round(EACH * 0.81), 36),
        ["look segment", f"note twice {' '.join(SENDERS)}"],
        ("10 % of single copies and 1.0 % of messages",),
    ),
    # everyday life
    (but(starts=starts(2)), [], ()),
    (but(starts=starts(9, cause="jump")), [], ()),
    *((refused(why, 3), [], ()) for why in ("replayed", "integrity_missing", "integrity_unknown", "length_mismatch")),
    (but(channels=BUSY, messages=3_200_000), [], ()),
]


@pytest.mark.parametrize(("facts", "expected", "parts"), CASES)
def test_faults_are_the_findings_and_nothing_else(facts: Facts, expected: list[str], parts: tuple[str, ...]) -> None:
    assert findings(facts) == expected
    texts = ((found.title, found.evidence, found.cause, found.remedy) for found in run_checks(facts))
    text = spaced(" ".join(" ".join(found) for found in texts))
    assert [part for part in parts if part not in text] == [], text


def test_loss_in_each_minute_has_no_time_of_its_own() -> None:
    (finding,) = run_checks(receiver(300, receivers={"h03": course(lambda step: 8)}))
    assert "10:" not in finding.title + finding.evidence


@settings(max_examples=examples(60))
@given(
    st.integers(min_value=3, max_value=20),
    st.sampled_from(["receiver", "sender", "link"]),
    st.floats(min_value=0.03, max_value=1.0),
    st.integers(min_value=0, max_value=2**32),
)
def test_one_fault_in_a_fleet_of_any_size(number: int, kind: str, rate: float, seed: int) -> None:
    chance = random.Random(seed)
    hosts = tuple(f"h{index:02d}" for index in range(number))
    first, second = chance.sample(hosts, 2)

    def lost(host: str, sender: str) -> int:
        touched = {
            "receiver": host == first,
            "sender": sending_host(sender) == first,
            "link": (host, sending_host(sender)) == (first, second),
        }[kind]
        return sum(chance.random() < (rate if touched else 0.00002) for _ in range(1200))

    senders = tuple(f"{host}/app" for host in hosts)
    links = tuple(link(host, sender, lost(host, sender), sent=1200) for host in hosts for sender in senders)
    (finding,) = run_checks(replace(fleet(hosts=hosts, senders=senders), links=links))
    assert (finding.kind, finding.about) == (kind, (first, second) if kind == "link" else (first,))


@settings(max_examples=examples(60))
@given(st.integers(min_value=2, max_value=25), st.floats(min_value=0, max_value=0.0004), st.integers(0, 2**32))
def test_chance_is_no_fault(number: int, rate: float, seed: int) -> None:
    chance = random.Random(seed)
    hosts = tuple(f"h{index:02d}" for index in range(number))
    lost = {(host, sender): sum(chance.random() < rate for _ in range(600)) for host in hosts for sender in hosts}
    links = tuple(link(host, sender, lost[host, sender], sent=600) for host in hosts for sender in hosts)
    verdict = attribution.attribute(by_sending_host(links))
    assert not any((verdict.segment, verdict.receivers, verdict.senders, verdict.pairs, verdict.unsent))


def test_the_first_is_what_matters_most() -> None:
    facts = fleet(lambda host, sender: 20 if host == "h03" else 400 if sending_host(sender) == "h02" else 0)
    apart = (Clock("h05", "h01", 0, 200_000, 0, 1000), Clock("h06", "h01", 0, 0, 0, 1000))
    facts = replace(facts, clocks=apart, starts=starts(9), refusals=refused("integrity_failed").refusals)
    ranked = run_checks(facts)
    assert [finding.kind for finding in ranked] == ["forged", "sender", "receiver", "restarts", "clock"]
    severity, sentence = health(facts, ranked)
    assert severity == URGENT
    assert "192.0.2.66" in sentence
