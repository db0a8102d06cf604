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
from bccnd.pipeline.report.findings import LOOK, NOTE, URGENT, ReportFinding, health
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


def only(facts: Facts) -> ReportFinding:
    all_found = run_checks(facts)
    assert len(all_found) == 1, all_found
    return all_found[0]


def course(lost: Callable[[int], int], due: int = 100) -> Course:
    return Course((due,) * 60, tuple(lost(step) for step in range(60)), (0,) * 60)


def pairs(facts: Facts) -> list[tuple[str, tuple[str, ...]]]:
    return [(finding.kind, finding.about) for finding in run_checks(facts)]


def test_a_fleet_that_loses_only_by_chance_has_no_findings() -> None:
    chance = random.Random(1)
    for facts, part in (
        (fleet(), "All is well"),
        (fleet(lambda host, sender: chance.randrange(3)), "too little to act on"),
    ):
        assert run_checks(facts) == []
        severity, sentence = health(facts, [])
        assert (severity, part in sentence) == (3, True)


# -- the cause of loss


@pytest.mark.parametrize("lost", [8, 40, 400, 3600])
def test_a_receiver_a_sender_or_a_pair_of_hosts(lost: int) -> None:
    finding = only(fleet(lambda host, sender: lost if host == "h03" else 0))
    assert (finding.kind, finding.about, "7 of 7" in finding.evidence) == ("receiver", ("h03",), True)
    assert finding.severity == (URGENT if lost >= 0.05 * EACH else LOOK)
    finding = only(fleet(lambda host, sender: lost if sender.startswith("h03/") else 0))
    assert (finding.kind, finding.about, "7 of 7" in finding.evidence) == ("sender", ("h03",), True)
    lost = max(lost, 12)
    finding = only(fleet(lambda host, sender: lost if (host, sending_host(sender)) == ("h02", "h06") else 0))
    assert (finding.kind, finding.about) == ("link", ("h02", "h06"))


@pytest.mark.parametrize("lost", [20, 180])
def test_the_segment(lost: int) -> None:
    chance = random.Random(2)
    finding = only(fleet(lambda host, sender: lost + chance.randrange(lost // 4)))
    assert (finding.kind, finding.about) == ("segment", ())


def test_numbers_that_are_missing_everywhere_are_their_senders() -> None:
    finding = only(fleet(unsent=lambda sender: 72 if sender.startswith("h05/") else 0))
    assert (finding.kind, finding.about) == ("sender", ("h05",))
    assert spaced(finding.evidence).startswith("72 messages of 3,600 (2.0 %)")
    senders = (*SENDERS, "h03/camera")
    finding = only(fleet(lambda host, sender: 100 if sender == "h03/camera" else 0, senders=senders))
    assert (finding.about, "h03/camera" in finding.evidence) == (("h03",), True)


def test_several_faults_at_once_are_distinguished() -> None:
    def lost(host: str, sender: str) -> int:
        if host == "h01":
            return 300
        if sending_host(sender) == "h02":
            return 90
        return 500 if (host, sending_host(sender)) == ("h04", "h05") else 1

    assert set(pairs(fleet(lost))) == {("receiver", ("h01",)), ("sender", ("h02",)), ("link", ("h04", "h05"))}
    bad_segment = fleet(lambda host, sender: 900 if host == "h07" else 72)
    assert pairs(bad_segment) == [("receiver", ("h07",)), ("segment", ())]
    several = fleet(lambda host, sender: 200 if host == "h03" and sending_host(sender) in HOSTS[4:7] else 0)
    assert pairs(several) == [("receiver", ("h03",))]


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
    finding = only(replace(fleet(hosts=hosts, senders=senders), links=links))
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


def test_what_few_receivers_lose_together_is_the_segment() -> None:
    # Two receivers that lose a tenth each lose a hundredth together.
    hosts = ("h01", "h02")
    links = tuple(
        Link(host, f"s{number}/app", 10_000, 9_900, 9_000, 900, 100, 0, 0, 0) for host in hosts for number in range(4)
    )
    assert pairs(replace(fleet(hosts=hosts), links=links)) == [("segment", ())]


@pytest.mark.parametrize(
    ("bad", "kind", "about"), [(range(4), "receiver", ("h01",)), ((2,), "link", ("h01", "s2"))], ids=["all", "one"]
)
def test_one_recording_host_cannot_tell_sender_from_receiver(
    bad: Sequence[int], kind: str, about: tuple[str, ...]
) -> None:
    links = tuple(link("h01", f"s{number}/app", unsent=200 if number in bad else 0) for number in range(4))
    finding = only(replace(fleet(hosts=("h01",)), links=links))
    assert (finding.kind, finding.about, "cannot be distinguished" in finding.cause) == (kind, about, True)


def test_loss_that_came_together_is_reported_with_its_time() -> None:
    facts = fleet(lambda host, sender: 300 if host == "h03" else 0)
    finding = only(replace(facts, receivers={"h03": course(lambda step: 100 if 20 <= step < 25 else 0)}))
    assert "10:20 to 10:25" in finding.title
    assert "between 10:20 and 10:25 UTC" in finding.evidence
    finding = only(replace(facts, receivers={"h03": course(lambda step: 8)}))
    assert "10:" not in finding.title + finding.evidence


# -- everything else


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
PEER = ("192.0.2.66",)
HOLES = (
    MissingRecords("h02", "j", 12_000, 14_999, START + MINUTE, START + 2 * MINUTE),
    MissingRecords("h02", "k", 5, 5, START, None),
)
BAD = UnusableFile("h02", "obs/a", "torn")
BUSY = tuple(channel._replace(messages=400_000, peak=9000) for channel in FLEET.channels)


@pytest.mark.parametrize(
    ("facts", "kind", "about", "severity", "parts"),
    [
        (absent("h04", 1200, NOT_RECORDING), "not_recording", ("h04",), NOTE, ("10:00 and 10:20",)),
        (REACH, "not_recording", ("h04",), NOTE, ("data ends at 10:20",)),
        (replace(absent("h04", 600, DOWN), silences=OFF), "host_down", ("h04",), LOOK, ("10 min",)),
        (silent(DEAD), "died", ("h02/app",), URGENT, ("10:41",)),
        (silent(silence("h02/app", 10, 15, "gap")), "silent", ("h02/app",), LOOK, ("5 min",)),
        (silent(*(silence(src, 1, None, "open", "any") for src in SENDERS[:5])), "left", SENDERS[:5], NOTE, ()),
        (silent(*IN_A_ROW), "host_down", ("h02",), LOOK, ("5 min",)),
        (but(starts=starts(5, 2)), "restarts", ("h06/app",), LOOK, ("7 times in 60", "2 restarts")),
        (but(starts=(SKIPPED,)), "jump", ("h06/app",), LOOK, ("skipped 5,000 numbers", "at 10:01")),
        (but(unordered=(Unordered("h06/rnd", 2, START),)), "unordered", ("h06/rnd",), LOOK, ("2 of its processes",)),
        (
            but(missing=HOLES),
            "missing",
            ("h02",),
            LOOK,
            ("3,001 records", "12,000 to 14,999", "10:01 and 21 Nov 10:02"),
        ),
        (but(missing=HOLES[1:]), "missing", ("h02",), LOOK, ("1 record of",)),
        (but(unusable=(BAD, BAD._replace(host="h03"))), "damaged", ("h02", "h03"), LOOK, ("2 files", "obs/a: torn")),
        (but(unusable=(BAD._replace(host=""),)), "damaged", (), LOOK, ("1 file of",)),
        (but(unusable=(BAD._replace(why="unknown clock: 1970"),)), "unknown_clock", ("h02",), LOOK, ("1 file of h02",)),
        (refused("integrity_failed"), "forged", PEER, URGENT, ("500 datagrams", "8 hosts")),
        (refused("integrity_failed", 1), "forged", PEER, URGENT, ()),
        (refused("replayed"), "forged", PEER, URGENT, ()),
        *((refused(f"integrity_{why}"), "forged", PEER, LOOK, ()) for why in ("missing", "unknown")),
        (refused("length_mismatch"), "unknown", PEER, NOTE, ()),
        (FLOODED, "flood", ("alarm/all",), None, ("98 %", "h03/app")),
        (clocks(h05=2_500_000), "clock", ("h05",), LOOK, ("2.5 s ahead",)),
        (clocks(all=-2_500_000), "clock", ("h01",), LOOK, ("2.5 s ahead",)),
        (but(links=TWICE), "copies", ("h07",), None, ()),
        (but(links=LATE), "late", ("h02",), None, ("dedup.late: deliver",)),
    ],
)
def test_each_fault_alone_is_one_finding(
    facts: Facts, kind: str, about: tuple[str, ...], severity: int | None, parts: tuple[str, ...]
) -> None:
    finding = only(facts)
    assert (finding.kind, set(finding.about)) == (kind, set(about))
    assert severity in (None, finding.severity)
    text = spaced("\n".join((finding.title, finding.evidence, finding.remedy)))
    assert [part for part in parts if part not in text] == [], text


@pytest.mark.parametrize(
    "facts",
    [
        but(starts=starts(2)),
        but(starts=starts(9, cause="jump")),
        *(refused(verdict, 3) for verdict in ("replayed", "integrity_missing", "integrity_unknown", "length_mismatch")),
        but(channels=BUSY, messages=3_200_000),
    ],
)
def test_what_is_everyday_life_is_no_finding(facts: Facts) -> None:
    assert run_checks(facts) == []


def test_a_host_that_went_down_twice_is_two_findings() -> None:
    times = ((10, 12), (40, None))
    both = run_checks(
        silent(*(silence(f"h02/{name}", start, end, "host_down") for start, end in times for name in "ab"))
    )
    assert [(finding.kind, finding.severity) for finding in both] == [("host_down", URGENT), ("host_down", LOOK)]


def with_copies(dup: int, lost: int, at: Sequence[str] = HOSTS) -> ReportFinding:
    """Return the finding about sending twice; ``dup`` and ``lost`` are of these hosts, at the others every copy
    arrives."""
    twice = [pair if pair.own else pair._replace(dup=EACH) for pair in fleet().links]
    links = tuple(
        link(pair.host, pair.program, lost)._replace(dup=dup) if pair.host in at and not pair.own else pair
        for pair in twice
    )
    (finding,) = [finding for finding in run_checks(replace(fleet(), links=links)) if finding.kind == "twice"]
    return finding


def test_whether_sending_twice_pays() -> None:
    finding = with_copies(EACH, 0)
    assert (finding.severity, "does not pay" in finding.title) == (NOTE, True)
    # A tenth of the copies lost: of those that arrive, 0.81 / 0.99 arrive twice, and a hundredth is lost.
    finding = with_copies(round(EACH * 0.81), round(EACH * 0.01))
    assert "pays" in finding.title
    assert "10 % of single copies and 1.0 % of messages" in spaced(finding.evidence)
    assert "hardly helps" in with_copies(round(EACH * 0.81), round(EACH * 0.09)).title
    assert with_copies(round(EACH * 0.81), 36, ["h05"]).title.endswith("only at h05")


def test_the_first_is_what_matters_most() -> None:
    facts = fleet(lambda host, sender: 20 if host == "h03" else 400 if sending_host(sender) == "h02" else 0)
    apart = (Clock("h05", "h01", 0, 200_000, 0, 1000), Clock("h06", "h01", 0, 0, 0, 1000))
    facts = replace(facts, clocks=apart, starts=starts(9), refusals=refused("integrity_failed").refusals)
    ranked = run_checks(facts)
    assert [finding.kind for finding in ranked] == ["forged", "sender", "receiver", "restarts", "clock"]
    severity, sentence = health(facts, ranked)
    assert severity == URGENT
    assert "192.0.2.66" in sentence


def test_names_from_the_network_cannot_hide() -> None:
    assert only(silent(silence("h02/\x1b[2J\u202e", 0, None, "open"))).title.isprintable()
