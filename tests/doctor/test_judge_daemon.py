"""What a daemon's answers mean, and what became of a message to oneself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bccnd.doctor.facts import DaemonAnswer, Metrics, Trip
from bccnd.doctor.judge_daemon import judge_answer, judge_gateways, judge_metrics, judge_traffic, judge_trip

SAID: dict[str, Any] = {"version": "1.2", "pid": 7, "host": "relay01", "received": 10, "verdicts": {"accepted": 10}}
WELL = DaemonAnswer(seconds=0.001, said=SAID)


@pytest.mark.parametrize(
    ("facts", "state", "says", "remedy"),
    [
        (WELL, "ok", "version 1.2, pid 7, relay01", ""),
        (replace(WELL, said={**SAID, "version": "1.1"}), "look", "1.2 is installed", "systemctl restart bccnd"),
        (replace(WELL, seconds=0.9), "look", "slow", "bccn top"),
        (DaemonAnswer(seconds=0.001), "look", "bccn-sbusd", "--socket"),
        (DaemonAnswer("no_daemon", "cannot reach"), "wrong", "no daemon answers", "systemctl start bccnd"),
        (DaemonAnswer("no_answer", "", 3.0, {"pid": 7}, state="T"), "wrong", "SIGSTOP", "kill -CONT 7"),
        (DaemonAnswer("no_answer", "", 3.0, {"pid": 7}, state="R"), "wrong", "it hangs", "systemctl restart"),
        (DaemonAnswer("not_permitted", "Permission denied"), "not checked", "Permission denied", "adduser"),
        (DaemonAnswer("connection_lost", "gone"), "wrong", "does not serve us: gone", "systemctl status"),
    ],
)
def test_whether_a_daemon_answers(facts: DaemonAnswer, state: str, says: str, remedy: str) -> None:
    (found,) = judge_answer(facts, "1.2")
    assert (found.state, says in found.finding, remedy in found.remedy) == (state, True, True), found


@pytest.mark.parametrize(
    ("said", "state", "says"),
    [
        (SAID, "ok", "none of them lost"),
        ({}, "not checked", "no daemon"),
        ({**SAID, "verdicts": {"integrity_failed": 3}}, "look", "3 of 10 datagrams were refused (integrity_failed)"),
        ({**SAID, "verdicts": {"integrity_missing": 3}}, "look", "they carry no check"),
        ({**SAID, "lost": 4}, "look", "4 messages were lost"),
        (
            {**SAID, "dropped": {"queue_messages": 5, "client_gone": 9}},
            "look",
            "dropped for programs of this host (queue_messages 5)",
        ),
        ({**SAID, "dropped": {"client_gone": 9}}, "ok", "none of them lost"),
        ({**SAID, "verdicts": {"duplicate": 9, "looped": 4, "not_addressed": 1}}, "ok", "none of them lost"),
    ],
)
def test_what_a_daemon_has_counted(said: dict[str, Any], state: str, says: str) -> None:
    (found,) = judge_traffic(said)
    assert (found.state, says in found.finding) == (state, True), found
    assert bool(found.remedy) == (state == "look")


def gateway(name: str, *, up: bool = True, peers: int = 1) -> dict[str, Any]:
    return {"gateway": name, "up": up, "peers_connected": peers}


@pytest.mark.parametrize(
    ("configured", "answer", "dials", "states"),
    [
        ([], replace(WELL, gateways=[]), 0, ["ok"]),
        (["nng"], replace(WELL, gateways=[gateway("nng")]), 1, ["ok"]),
        (["nng"], replace(WELL, gateways=[gateway("nng")]), 2, ["look"]),
        (["nng"], replace(WELL, gateways=[gateway("nng", up=False)]), 0, ["wrong"]),
        (["nng", "broker"], replace(WELL, gateways=[gateway("broker", peers=0)]), 0, ["wrong", "ok"]),
        (["nng"], DaemonAnswer("no_daemon"), 1, ["not checked"]),
    ],
)
def test_gateways(configured: list[str], answer: DaemonAnswer, dials: int, states: list[str]) -> None:
    assert [one.state for one in judge_gateways(configured, answer, dials)] == states


def test_the_metrics_listener() -> None:
    here = "127.0.0.1:9540"
    for facts, state in (
        *((Metrics(), "ok"), (Metrics(here, status=200), "ok"), (Metrics(here, status=404), "wrong")),
        *((Metrics("0.0.0.0:9540", exposed=True, status=200), "look"), (Metrics(here, trouble="refused"), "wrong")),
    ):
        assert [one.state for one in judge_metrics(facts)] == [state]


ROUND = Trip(seconds=0.001, segments=("lan", "wan"), back=(("lan", "looped"), ("wan", "looped")), wire_seconds=0.002)


@pytest.mark.parametrize(
    ("facts", "states", "says"),
    [
        (ROUND, ["ok", "ok"], "came back from lan, wan after 2.0 ms"),
        (replace(ROUND, back=(("lan", "looped"),)), ["ok", "wrong"], "did not come back from wan within a second"),
        (
            replace(ROUND, back=(("lan", "looped"), ("wan", "integrity_failed"))),
            *(["ok", "wrong", "ok"], "segment wan: our own broadcast came back as integrity_failed"),
        ),
        (replace(ROUND, seen_by="counters", wire_seconds=None), ["ok", "ok"], "by the daemon's counters"),
        (replace(ROUND, seen_by="counters", back=()), ["ok", "wrong"], "has counted no broadcast of its own"),
        (replace(ROUND, seconds=None, seen_by="own"), ["ok"], "through a socket of our own"),
        (Trip(skipped="no keys", remedy="as root"), ["not checked"], "no keys"),
        (Trip(failed="cannot send", remedy="see route"), ["wrong"], "cannot send"),
        (Trip(seconds=0.001), ["ok"], "over the bus"),
    ],
)
def test_a_message_to_oneself(facts: Trip, states: list[str], says: str) -> None:
    found = list(judge_trip(facts))
    assert [one.state for one in found] == states
    assert any(says in one.finding for one in found), found
    assert all(one.remedy for one in found if one.state == "wrong")
