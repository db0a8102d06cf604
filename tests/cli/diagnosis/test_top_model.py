"""Two looks at a daemon -> figures -> what fits on a terminal."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.screen import Screen

from bccnd.cli.diagnosis import top_model
from bccnd.cli.diagnosis.top import draw
from bccnd.cli.diagnosis.top_model import NAMELESS, OTHERS, Figures, Look, TrafficCount, figures, restarted
from bccnd.core.wire.verdicts import NAMES
from bccnd.snapshot import ClientState, DaemonSummary, GatewayPeerState, GatewayState, SourceState


def daemon(**changes: Any) -> DaemonSummary:
    verdicts = {**dict.fromkeys(NAMES, 0), **changes.pop("verdicts", {})}
    about = {"version": "0.1", "host": "relay01", "identity": "relay01/bccnd/7", "pid": 7, "started": 1000.0}
    held = {"clients": 2, "subscriptions": 3, "sources": 4, "segments": ["lan"]}
    dropped = {"queue_messages": 0, "client_gone": 0}
    return DaemonSummary(**{**about, **held, "dropped": dropped, **changes, "verdicts": verdicts})


def client(identity: str, **changes: Any) -> ClientState:
    program, pid = identity.split("/")[1:3]
    row = {"identity": identity, "program": program, "pid": int(pid), "uid": 0, "since": 1.0, "dialect": "path"}
    row |= {"subscriptions": 1, "patterns": ["x/"], "waits": False}
    return ClientState(**{**row, **dict.fromkeys(("published", "queued", "queued_bytes", "lost"), 0), **changes})


def source(src: str, state: str = "", silent: float = 0.0, missing: int = 0) -> SourceState:
    return SourceState(src, state, silent, 1, 0, missing, "")


def gateway(name: str, *, up: bool = True, peers: list[GatewayPeerState], **changes: Any) -> GatewayState:
    return GatewayState(name, up=up, peers=peers, peers_connected=len(peers), **changes)


def peer(address: str, name: str = "", **changes: int) -> GatewayPeerState:
    return GatewayPeerState(
        address, name, 1.0, **{**dict.fromkeys(("received", "sent", "dropped", "queued"), 0), **changes}
    )


def link(receiver: str, sender: str, received: int, lost: int) -> dict[str, Any]:
    return {"receiver": receiver, "sender": sender, "received": received, "lost": lost, "late": 0, "duplicate": 0}


def test_rates_and_losses_are_those_between_two_looks() -> None:
    begun = {"received": 100, "deliveries": 7, "missing": 5, "lost": 1, "kernel_drops": 2}
    ended = {"received": 136, "deliveries": 57, "missing": 4, "lost": 4, "kernel_drops": 2, "sent": 3, "published": 3}
    earlier = {"accepted": 90, "duplicate": 10}
    now = {"accepted": 110, "restart": 2, "duplicate": 11, "stale": 1, "integrity_failed": 4, "bad_src": 5, "looped": 3}
    before = Look(10.0, daemon(**begun, verdicts=earlier, dropped={"queue_messages": 3, "client_gone": 1}))
    after = Look(12.0, daemon(**ended, verdicts=now, dropped={"queue_messages": 9, "client_gone": 1}))
    shown = figures(before, after, TrafficCount(), 2.0)
    assert shown.seconds == 2.0
    rates = {"received": 18.0, "sent": 1.5, "published": 1.5, "deliveries": 25.0, "delivered": 11.0, "dropped": 1.0}
    assert shown.rates == {**rates, "integrity": 2.0, "bad": 2.5, "looped": 1.5}
    assert shown.totals["delivered"] == 112
    assert shown.losses == {"missing": 4, "lost": 4, "kernel_drops": 2}
    assert shown.new == {"missing": 0, "lost": 3, "kernel_drops": 0}
    assert shown.dropped_now == {"queue_messages": 6}


@pytest.mark.parametrize("changes", [{"pid": 8}, {"started": 1001.0}])
def test_another_daemon_is_not_compared_with_the_one_before(changes: dict[str, Any]) -> None:
    before = Look(1.0, daemon(received=1000, lost=9), [client("relay01/a/1", lost=5)])
    after = Look(2.0, daemon(received=10, lost=1, **changes), [client("relay01/a/1", lost=2)])
    assert restarted(before, after)
    assert not restarted(before, before)
    assert not restarted(None, after)
    shown = figures(before, after, TrafficCount(), 1.0)
    assert (shown.seconds, shown.rates, shown.new["lost"]) == (None, {}, 0)
    assert shown.losses["lost"] == 1
    assert shown.worst_clients[0]["published"] is None
    assert shown == figures(None, after, TrafficCount(), 1.0)


def test_the_busiest_come_first_by_the_time_of_listening() -> None:
    traffic = TrafficCount()
    for chan, src, size in [("a", "s/1", 10), ("b", "s/1", 1), ("b", "s/2", 2), ("c", "", 100)]:
        traffic.add(chan, src, size)
    traffic.lost = 7
    shown = figures(None, Look(1.0, daemon()), traffic, 0.5)
    assert [tuple(row.values()) for row in shown.busy_channels] == [
        ("b", 4.0, 6.0),
        ("c", 2.0, 200.0),
        ("a", 2.0, 20.0),
    ]
    assert [row["name"] for row in shown.busy_senders] == ["s/1", NAMELESS, "s/2"]
    assert (shown.heard, shown.unheard, shown.heard_seconds) == (4, 7, 0.5)
    assert figures(None, Look(1.0, daemon()), traffic, 0.0).busy_channels == []


def test_a_flood_of_names_is_counted_as_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top_model, "MAX_NAMES", 3)
    traffic = TrafficCount()
    for number in range(10):
        traffic.add(f"c/{number}", "s", 1)
    traffic.add("c/0", "s", 1)
    assert traffic.channels == {"c/0": [2, 2], "c/1": [1, 1], "c/2": [1, 1], OTHERS: [7, 7]}
    assert traffic.messages == 11


def test_clients_come_by_their_troubles() -> None:
    before = [client("h/loses/1", lost=3), client("h/lost/2", lost=90), client("h/busy/3", published=10)]
    after = [
        client("h/idle/6"),
        client("h/busy/3", published=30),
        client("h/lost/2", lost=90),
        client("h/waits/5", waits=True),
        client("h/behind/4", queued=2, queued_bytes=500),
        client("h/loses/1", lost=4),
    ]
    shown = figures(Look(0.0, daemon(), before), Look(2.0, daemon(), after), TrafficCount(), 2.0)
    assert [row["identity"] for row in shown.worst_clients] == [
        *("h/loses/1", "h/behind/4", "h/waits/5", "h/lost/2", "h/busy/3", "h/idle/6")
    ]
    by_name = {row["identity"]: row for row in shown.worst_clients}
    assert by_name["h/loses/1"]["lost_now"] == 1
    assert by_name["h/busy/3"]["published"] == 10.0
    assert by_name["h/idle/6"]["published"] is None  # it has just come


def test_sources_are_counted_by_state_and_listed_by_trouble() -> None:
    rows = [
        *(source("a/1", "alive"), source("a/2", "alive", missing=3), source("a/3"), source("a/4", missing=9)),
        *(source("a/5", "dead", 50.0), source("a/6", "dead", 20.0), source("a/7", "silent", 3.0)),
        SourceState("a/8", "dead", 9.0),
    ]
    shown = figures(None, Look(0.0, daemon(), sources=rows), TrafficCount(), 1.0)
    assert shown.states == {"alive": 2, "silent": 1, "dead": 3}
    assert [row["src"] for row in shown.troubled_sources] == ["a/7", "a/8", "a/6", "a/5", "a/4", "a/2"]


def test_rates_sizes_and_times_for_people() -> None:
    rates = {None: "-", 0.0: "0", 0.04: "0.0", 9.96: "10", 99_999.0: "99,999", 123_456.0: "123k"}
    sizes = {0: "0", 1023: "1023", 1023 << 10: "1023K", 1024: "1.0K", 102_400: "100.0K", 5 << 30: "5.0G"}
    times = {-1: "0s", 59.9: "59s", 61: "1m 01s", 3600: "1h 00m", 90_000: "1d 01h"}
    assert {value: top_model.rate(value) for value in rates} == rates
    assert {value: top_model.size(value) for value in sizes} == sizes
    assert {value: top_model.span(value) for value in times} == times


@given(st.floats(0, 1e17))
def test_no_number_is_wider_than_its_column(value: float) -> None:
    assert len(top_model.rate(value)) <= 6
    assert len(top_model.count(value)) <= 6
    assert len(top_model.size(value)) <= 6


def busy_figures(names: list[str], linked: bool = False) -> Figures:
    traffic = TrafficCount()
    for name in names:
        traffic.add(name, name, 1000)
    traffic.lost = 3
    clients = [replace(client(f"h/{number}/{number}", lost=number), identity=name) for number, name in enumerate(names)]
    gateways = [gateway(name, peers=[peer(name)]) for name in names] if linked else []
    links = [link(name, name, 1, 10**number) for number, name in enumerate(names)] if linked else []
    before = Look(0.0, daemon(started=0.0), clients, [], gateways)
    now = daemon(started=0.0, segments=names[:3], lost=7, dropped={"queue_bytes": 5})
    sources = [source(name, "dead", 1e6, 99) for name in names]
    return figures(before, Look(1.0, now, clients, sources, gateways, links), traffic, 1.0)


def drawn(shown: Figures, width: int, height: int, note: str = "") -> list[str]:
    """The lines that a terminal of that size shows."""
    console = Console(
        file=io.StringIO(), width=width, height=height, legacy_windows=False, markup=False, highlight=False, emoji=False
    )
    console.print(Screen(draw(shown, console, 1e6, note)))
    text = cast(io.StringIO, console.file).getvalue()
    return text.split("\n")


@given(
    st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=60), max_size=60),
    st.integers(1, 250),
    st.integers(1, 80),
    st.text(max_size=100),
    st.booleans(),
)
def test_what_is_drawn_fits_and_can_be_printed(
    names: list[str], width: int, height: int, note: str, linked: bool
) -> None:
    lines = drawn(busy_figures(names, linked), width, height, note)
    assert len(lines) <= height
    for line in lines:
        assert line.isprintable()
        assert cell_len(line) <= width


def test_gateways_and_their_peers_come_by_their_losses() -> None:
    before = [gateway("nng", received=10, dropped={"late": 1}, peers=[peer("b:1", received=10), peer("c:1")])]
    peers = [peer("b:1", received=30), peer("c:1", "tcp://c:1", sent=8, dropped=3)]
    after = [
        gateway("nng", received=30, sent=8, dropped={"late": 1, "queue_full": 3}, peers=peers),
        gateway("broker", up=False, peers=[peer("gone")]),
    ]
    shown = figures(Look(0.0, daemon(), gateways=before), Look(2.0, daemon(), gateways=after), TrafficCount(), 1.0)
    names = ("name", "up", "peers", "received", "sent", "dropped", "dropped_now")
    assert [tuple(row[name] for name in names) for row in shown.gateways] == [
        ("nng", True, 2, 10.0, 4.0, 4, 3),
        ("broker", False, 1, None, None, 0, 0),
    ]
    assert [tuple(row[name] for name in names) for row in shown.peers] == [
        ("nng c:1 tcp://c:1", True, None, 0.0, 4.0, 3, 3),
        ("nng b:1", True, None, 10.0, 0.0, 0, 0),
    ]
    text = "\n".join(drawn(shown, 120, 40))
    for part in ("gateway", "nng (2 peers)", "broker (DOWN)", "peer", "nng c:1 tcp://c:1"):
        assert part in text
