"""What to look at first: each fault alone is found, named rightly and told first; a healthy fleet has none."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd.pipeline.report import blame, words
from bccnd.pipeline.report.facts import (
    Channel,
    Clock,
    Course,
    Epoch,
    Facts,
    Link,
    Refusals,
    Silence,
    by_sending_host,
    sending_host,
)
from bccnd.pipeline.report.findings import LOOK, NOTE, URGENT, Finding, findings, health

#: 21 November 2026, 10:00:00 UTC
START = 1_795_255_200_000_000
MINUTE = words.MINUTE
HOUR = words.HOUR
HOSTS = tuple(f"h{number:02d}" for number in range(1, 9))
SENDERS = tuple(f"{host}/app/7" for host in HOSTS)
EACH = 3600

Lost = Callable[[str, str], int]


def link(host: str, sender: str, lost: int = 0, unsent: int = 0, absent: int = 0, each: int = EACH) -> Link:
    own = sending_host(sender) == host
    lost = 0 if own else lost
    any_seen = each - unsent
    return Link(host, sender, each, any_seen, any_seen - lost - absent, lost, unsent, absent, 0, 0)


def fleet(
    lost: Lost = lambda host, sender: 0,
    unsent: Callable[[str], int] = lambda sender: 0,
    hosts: tuple[str, ...] = HOSTS,
    senders: tuple[str, ...] = SENDERS,
) -> Facts:
    """An hour of a fleet in which everybody sends to everybody, one message a second."""
    links = tuple(link(host, sender, lost(host, sender), unsent(sender)) for host in hosts for sender in senders)
    channels = tuple(Channel(f"data/{one}", EACH, EACH * 100, 120, False, 60, one, EACH) for one in senders)
    return Facts(
        start=START,
        end=START + HOUR,
        step=MINUTE,
        hosts=hosts,
        senders=len(senders),
        messages=EACH * len(senders),
        links=links,
        channels=channels,
        all_messages=EACH * len(senders),
        all_channels=len(senders),
    )


def only(facts: Facts) -> Finding:
    found = findings(facts)
    assert len(found) == 1, found
    return found[0]


def course(lost: Callable[[int], int], due: int = 100) -> Course:
    return Course((due,) * 60, tuple(lost(step) for step in range(60)), (0,) * 60)


def test_a_healthy_fleet_has_no_findings() -> None:
    facts = fleet()
    assert findings(facts) == []
    assert health(facts, [])[0] == 3
    assert "All is well" in health(facts, [])[1]


def test_a_few_losses_by_chance_are_no_finding() -> None:
    chance = random.Random(1)
    facts = fleet(lambda host, sender: chance.randrange(3))
    assert findings(facts) == []
    severity, sentence = health(facts, [])
    assert severity == 3
    assert "lost, which is nothing to act on" in sentence


# -- who is to blame for loss


@pytest.mark.parametrize("lost", [8, 40, 400, 3600])
def test_a_receiver_that_misses_from_everybody(lost: int) -> None:
    found = only(fleet(lambda host, sender: lost if host == "h03" else 0))
    assert (found.kind, found.about) == ("receiver", ("h03",))
    assert found.title == "h03 misses messages of everybody"
    assert "7 of 7 sending hosts" in found.evidence
    assert found.severity == (URGENT if lost >= 0.05 * EACH else LOOK)


@pytest.mark.parametrize("lost", [8, 40, 400, 3600])
def test_a_sender_whom_everybody_misses(lost: int) -> None:
    found = only(fleet(lambda host, sender: lost if sender.startswith("h03/") else 0))
    assert (found.kind, found.about) == ("sender", ("h03",))
    assert "7 of 7 other hosts" in found.evidence


def test_a_sender_of_whom_numbers_are_missing_everywhere() -> None:
    found = only(fleet(unsent=lambda sender: 72 if sender.startswith("h05/") else 0))
    assert (found.kind, found.about) == ("sender", ("h05",))
    assert spaced(found.evidence).startswith("72 messages of 3,600 (2.0 %) reached no host at all.")


def spaced(text: str) -> str:
    return text.replace("\N{NO-BREAK SPACE}", " ")


def test_the_program_of_a_host_that_it_is_about_is_named() -> None:
    senders = (*SENDERS, "h03/camera/9")
    found = only(fleet(lambda host, sender: 100 if sender == "h03/camera/9" else 0, senders=senders))
    assert found.about == ("h03",)
    assert "Nearly all of it was sent by h03/camera/9." in found.evidence


@pytest.mark.parametrize("lost", [12, 400])
def test_a_pair_of_hosts(lost: int) -> None:
    found = only(fleet(lambda host, sender: lost if (host, sending_host(sender)) == ("h02", "h06") else 0))
    assert (found.kind, found.about) == ("link", ("h02", "h06"))
    assert found.title == "h02 misses messages of h06"


@pytest.mark.parametrize("lost", [20, 180])
def test_the_segment(lost: int) -> None:
    chance = random.Random(2)
    found = only(fleet(lambda host, sender: lost + chance.randrange(lost // 4)))
    assert (found.kind, found.about) == ("segment", ())
    assert found.title == "All hosts lose messages of all others"


def test_several_faults_at_once_are_told_apart() -> None:
    def lost(host: str, sender: str) -> int:
        if host == "h01":
            return 300
        if sending_host(sender) == "h02":
            return 90
        return 500 if (host, sending_host(sender)) == ("h04", "h05") else 1

    found = findings(fleet(lost))
    assert {(one.kind, one.about) for one in found} == {
        ("receiver", ("h01",)),
        ("sender", ("h02",)),
        ("link", ("h04", "h05")),
    }


def test_a_bad_receiver_on_a_bad_segment_is_told_beside_it() -> None:
    found = findings(fleet(lambda host, sender: 900 if host == "h07" else 72))
    assert [(one.kind, one.about) for one in found] == [("receiver", ("h07",)), ("segment", ())]


def test_who_misses_from_several_but_not_from_all_is_told_once() -> None:
    found = only(fleet(lambda host, sender: 200 if host == "h03" and sending_host(sender) in HOSTS[4:7] else 0))
    assert (found.kind, found.about) == ("receiver", ("h03",))
    assert found.title == "h03 misses messages of several hosts"


@settings(max_examples=60, deadline=None)
@given(
    st.integers(min_value=3, max_value=20),
    st.sampled_from(["receiver", "sender", "link"]),
    st.floats(min_value=0.03, max_value=1.0),
    st.integers(min_value=0, max_value=2**32),
)
def test_whoever_it_is_in_a_fleet_of_any_size(number: int, kind: str, rate: float, seed: int) -> None:
    chance = random.Random(seed)
    hosts = tuple(f"h{one:02d}" for one in range(number))
    first, second = chance.sample(hosts, 2)

    def lost(host: str, sender: str) -> int:
        touched = {
            "receiver": host == first,
            "sender": sending_host(sender) == first,
            "link": (host, sending_host(sender)) == (first, second),
        }[kind]
        return sum(chance.random() < (rate if touched else 0.00002) for _ in range(1200))

    senders = tuple(f"{host}/app" for host in hosts)
    links = tuple(link(host, sender, lost(host, sender), each=1200) for host in hosts for sender in senders)
    found = only(replace(fleet(hosts=hosts, senders=senders), links=links))
    assert found.kind == kind
    assert found.about == ((first, second) if kind == "link" else (first,))


@settings(max_examples=60, deadline=None)
@given(st.integers(min_value=2, max_value=25), st.floats(min_value=0, max_value=0.0004), st.integers(0, 2**32))
def test_chance_accuses_nobody(number: int, rate: float, seed: int) -> None:
    chance = random.Random(seed)
    hosts = tuple(f"h{one:02d}" for one in range(number))
    lost = {(host, sender): sum(chance.random() < rate for _ in range(600)) for host in hosts for sender in hosts}
    links = tuple(link(host, sender, lost[host, sender], each=600) for host in hosts for sender in hosts)
    verdict = blame.judge(by_sending_host(links))
    assert (verdict.segment, verdict.receivers, verdict.senders, verdict.pairs, verdict.unsent) == (
        *(None, (), (), ()),
        (),
    )


def test_what_few_receivers_all_lose_by_chance_is_not_blamed_on_the_sender() -> None:
    # Two receivers that lose a tenth each lose a hundredth together.
    def one(host: str, sender: str) -> Link:
        return Link(host, sender, 10_000, 9_900, 9_000, 900, 100, 0, 0, 0)

    hosts = ("h01", "h02")
    links = tuple(one(host, f"s{number}/app") for host in hosts for number in range(4))
    found = findings(replace(fleet(hosts=hosts), links=links))
    assert [finding.kind for finding in found] == ["segment"]


def test_with_one_recording_host_sender_and_receiver_cannot_be_told_apart() -> None:
    links = tuple(link("h01", f"s{number}/app", unsent=200) for number in range(4))
    found = only(replace(fleet(hosts=("h01",)), links=links))
    assert (found.kind, found.about) == ("receiver", ("h01",))
    assert "cannot be told apart" in found.cause


def test_with_one_recording_host_and_one_bad_sender() -> None:
    links = tuple(link("h01", f"s{number}/app", unsent=200 if number == 2 else 0) for number in range(4))
    found = only(replace(fleet(hosts=("h01",)), links=links))
    assert (found.kind, found.about) == ("link", ("h01", "s2"))
    assert "cannot be told apart" in found.cause


def test_loss_that_came_together_is_told_with_its_time() -> None:
    facts = fleet(lambda host, sender: 300 if host == "h03" else 0)
    facts = replace(facts, receivers={"h03": course(lambda step: 100 if 20 <= step < 25 else 0)})
    found = only(facts)
    assert found.title == "h03 heard next to nothing from 10:20 to 10:25"
    assert "Nearly all of it between 10:20 and 10:25 UTC." in found.evidence


def test_loss_all_the_time_is_not() -> None:
    facts = fleet(lambda host, sender: 300 if host == "h03" else 0)
    found = only(replace(facts, receivers={"h03": course(lambda step: 8)}))
    assert found.title == "h03 misses messages of everybody"
    assert "between" not in found.evidence


# -- everything else


def test_a_host_that_was_not_recording_has_not_lost() -> None:
    links = tuple(link(host, sender, absent=1200 if host == "h04" else 0) for host in HOSTS for sender in SENDERS)
    gone = Course((100,) * 60, (0,) * 60, (100,) * 20 + (0,) * 40)
    found = only(replace(fleet(), links=links, receivers={"h04": gone}))
    assert (found.kind, found.about, found.severity) == ("not_recording", ("h04",), NOTE)
    assert "between 10:00 and 10:20 UTC" in found.evidence
    assert "not counted as lost" in found.evidence


def test_a_host_that_was_down_was_not_recording_either() -> None:
    links = tuple(link(host, sender, absent=600 if host == "h04" else 0) for host in HOSTS for sender in SENDERS)
    gone = Course((100,) * 60, (0,) * 60, (0,) * 20 + (100,) * 10 + (0,) * 30)
    silences = tuple(
        Silence(None, f"h04/{name}", START + 20 * MINUTE, START + 30 * MINUTE, "host_down", "any") for name in "ab"
    )
    found = only(replace(fleet(), links=links, receivers={"h04": gone}, silences=silences))
    assert found.kind == "host_down"


def test_a_sender_that_died() -> None:
    at = START + 41 * MINUTE
    silences = (
        Silence(None, "h02/app/7", at, None, "open", "heartbeat"),
        Silence("h01", "h02/app/7", at, None, "open", "heartbeat"),
    )
    found = only(replace(fleet(), silences=silences))
    assert (found.kind, found.about, found.severity) == ("died", ("h02/app/7",), URGENT)
    assert found.title == "h02/app/7 died at 10:41"


def test_a_sender_that_was_silent_and_came_back() -> None:
    silence = Silence(None, "h02/app/7", START + 10 * MINUTE, START + 15 * MINUTE, "gap", "heartbeat")
    found = only(replace(fleet(), silences=(silence,)))
    assert (found.kind, found.severity) == ("silent", LOOK)
    assert spaced(found.title) == "h02/app/7 was silent for 5 min"


def test_senders_without_heartbeats_may_just_have_ended() -> None:
    silences = tuple(Silence(None, src, START + MINUTE, None, "open", "any") for src in SENDERS[:5])
    found = only(replace(fleet(), silences=silences))
    assert (found.kind, found.severity) == ("left", NOTE)
    assert len(found.about) == 5


def test_a_host_that_was_down_is_told_once() -> None:
    silences = tuple(
        Silence(None, f"h02/{name}/7", START + 10 * MINUTE + step, START + 15 * MINUTE, "host_down", "heartbeat")
        for step, name in enumerate(("app", "meter", "card"))
    )
    found = only(replace(fleet(), silences=silences))
    assert (found.kind, found.about) == ("host_down", ("h02",))
    assert spaced(found.title) == "h02 was down for 5 min"


def test_a_host_that_went_down_twice_is_told_twice() -> None:
    silences = tuple(
        Silence(None, f"h02/{name}/7", START + at * MINUTE, end, "host_down", "heartbeat")
        for at, end in ((10, START + 12 * MINUTE), (40, None))
        for name in ("app", "meter")
    )
    found = findings(replace(fleet(), silences=silences))
    assert [(one.kind, one.severity) for one in found] == [("host_down", URGENT), ("host_down", LOOK)]


def epochs(restarts: int, masked: int = 0, cause: str = "restart") -> tuple[Epoch, ...]:
    causes = [cause] * restarts + ["masked"] * masked
    return tuple(
        Epoch("h06/app/7", number, START + number * MINUTE, START + HOUR, what, 8) for number, what in enumerate(causes)
    )


def test_a_sender_that_restarts_often() -> None:
    found = only(replace(fleet(), epochs=epochs(5, 2)))
    assert (found.kind, found.about, found.severity) == ("restarts", ("h06/app/7",), LOOK)
    assert found.evidence.startswith("7 times in 60")
    assert spaced(found.evidence).endswith("2 restarts went unnoticed by the daemons.")


def test_a_restart_or_two_is_everyday_life_and_a_leap_is_no_restart() -> None:
    assert findings(replace(fleet(), epochs=epochs(2))) == []
    assert findings(replace(fleet(), epochs=epochs(9, cause="jump"))) == []


def refused(verdict: str, datagrams: int = 500) -> Facts:
    one = Refusals("192.0.2.66", verdict, datagrams, 8, ("h01/app/7",), 1, START + MINUTE, START + 2 * MINUTE)
    return replace(fleet(), refusals=(one,))


def test_somebody_who_forges() -> None:
    found = only(refused("integrity_failed"))
    assert (found.kind, found.about, found.severity) == ("forged", ("192.0.2.66",), URGENT)
    assert spaced(found.evidence).startswith("500 datagrams refused by 8 hosts")
    assert only(refused("integrity_failed", 1)).kind == "forged"


@pytest.mark.parametrize(
    ("verdict", "kind", "severity"),
    [
        ("replayed", "forged", URGENT),
        ("integrity_missing", "forged", LOOK),
        ("integrity_unknown", "forged", LOOK),
        ("length_mismatch", "unknown", NOTE),
    ],
)
def test_other_refusals(verdict: str, kind: str, severity: int) -> None:
    found = only(refused(verdict))
    assert (found.kind, found.severity) == (kind, severity)
    assert findings(refused(verdict, 3)) == []


def test_a_channel_that_floods() -> None:
    flood = Channel("alarm/all", 50_000, 5_000_000, 120, False, 6000, "h03/app/7", 49_000)
    facts = fleet()
    found = only(replace(facts, channels=(flood, *facts.channels), all_messages=facts.all_messages + 50_000))
    assert (found.kind, found.about) == ("flood", ("alarm/all",))
    assert spaced(found.evidence).endswith("98 % came from h03/app/7.")


def test_channels_that_are_all_busy_do_not_flood() -> None:
    facts = fleet()
    channels = tuple(one._replace(messages=400_000, peak=9000) for one in facts.channels)
    assert findings(replace(facts, channels=channels, all_messages=3_200_000)) == []


def test_a_clock_that_is_wrong() -> None:
    clocks = tuple(Clock(host, "h01", 0, 2_500_000 if host == "h05" else 300, 0, 1000) for host in HOSTS[1:])
    found = only(replace(fleet(), clocks=clocks))
    assert (found.kind, found.about, found.severity) == ("clock", ("h05",), LOOK)
    assert spaced(found.title) == "The clock of h05 is 2.5 s ahead"


def test_a_clock_with_which_all_others_were_compared() -> None:
    clocks = tuple(Clock(host, "h01", 0, -2_500_000, 0, 1000) for host in HOSTS[1:])
    found = only(replace(fleet(), clocks=clocks))
    assert found.about == ("h01",)
    assert spaced(found.title) == "The clock of h01 is 2.5 s ahead"


def with_copies(dup: int, lost: int) -> Facts:
    links = tuple(
        link(host, sender, lost)._replace(dup=0 if sending_host(sender) == host else dup)
        for host in HOSTS
        for sender in SENDERS
    )
    return replace(fleet(), links=links)


def test_sending_twice_does_not_pay_where_nothing_is_lost() -> None:
    found = only(with_copies(EACH, 0))
    assert (found.kind, found.severity) == ("twice", NOTE)
    assert "does not pay" in found.title


def test_sending_twice_pays_where_single_copies_are_lost() -> None:
    # a tenth of the copies lost: of those that arrive, 0.81 / 0.99 arrive twice, and a hundredth is lost
    found = findings(with_copies(round(EACH * 0.81), round(EACH * 0.01)))
    twice = [one for one in found if one.kind == "twice"]
    assert "pays" in twice[0].title
    assert "10 % of single copies and 1.0 % of messages are lost" in spaced(twice[0].evidence)


def test_sending_twice_hardly_helps_where_both_are_lost() -> None:
    found = findings(with_copies(round(EACH * 0.81), round(EACH * 0.09)))
    assert "hardly helps" in next(one.title for one in found if one.kind == "twice")


def test_sending_twice_helps_where_one_host_loses_single_copies() -> None:
    facts = with_copies(EACH, 0)
    links = tuple(
        one._replace(dup=round(EACH * 0.81), seen=EACH - 36, lost_here=36) if one.host == "h05" and not one.own else one
        for one in facts.links
    )
    twice = [one for one in findings(replace(facts, links=links)) if one.kind == "twice"]
    assert twice[0].title.endswith("only at h05")


def test_a_host_that_receives_everything_twice() -> None:
    links = tuple(
        link(host, sender)._replace(dup=EACH if host == "h07" and not sender.startswith("h07/") else 0)
        for host in HOSTS
        for sender in SENDERS
    )
    found = only(replace(fleet(), links=links))
    assert (found.kind, found.about) == ("copies", ("h07",))


def test_messages_that_come_too_late() -> None:
    links = tuple(one._replace(late=40 if one.host == "h02" else 0) for one in fleet().links)
    found = only(replace(fleet(), links=links))
    assert (found.kind, found.about) == ("late", ("h02",))
    assert "dedup.late: deliver" in found.remedy


def test_the_first_is_what_matters_most() -> None:
    facts = fleet(lambda host, sender: 20 if host == "h03" else 400 if sending_host(sender) == "h02" else 0)
    clocks = (Clock("h05", "h01", 0, 200_000, 0, 1000), Clock("h06", "h01", 0, 0, 0, 1000))
    facts = replace(facts, clocks=clocks, epochs=epochs(9), refusals=refused("integrity_failed").refusals)
    found = findings(facts)
    assert [one.kind for one in found] == ["forged", "sender", "receiver", "restarts", "clock"]
    severity, sentence = health(facts, found)
    assert severity == URGENT
    assert sentence.startswith("Needs attention: somebody at 192.0.2.66 signs with a wrong key; ")


def test_names_from_the_network_cannot_hide() -> None:
    silence = Silence(None, "h02/\x1b[2J\u202e", START, None, "open", "heartbeat")
    found = only(replace(fleet(), silences=(silence,)))
    assert found.title.isprintable()
