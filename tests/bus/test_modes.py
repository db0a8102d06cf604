"""Clients that read slowly: their modes, rates of users, and which publishers wait; the words are in `scenario`."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest

from bccnd.bus.clients.access_rules import admit_all
from bccnd.bus.clients.client import HARD_MODES, SOFT_MODES
from bccnd.core.wire import frames
from tests.bus import scenario
from tests.bus.packets import clog, collect, mode, numbered
from tests.handover.successors import Site
from tests.rules import bus_limits
from tests.support import Hub, dropped, gaps, slow, turn_until

#: little for each client, and a patience that does not end before a test does
LITTLE: Final[dict[str, Any]] = {"queue": {"messages": 20, "bytes": 100_000}, "patience": 600.0}

#: histories by the settings of their bus
HISTORIES: Final[list[tuple[dict[str, Any], dict[str, str]]]] = [
    (LITTLE, {
        "with soft discard only the gap waits": "r.modes:discard segment:50 r.queued=0 r.read segment:1 lost>0",
        "the segment does not wait": "r.modes:block/block segment:100 r.queued=20 r.read lost>0",
        "nor does the daemon": "r.modes:block/block daemon:100 r.queued=20 lost>0 published=0",
        "with hard block publishers wait for room": "r.modes:/block p.send:200 p.waits r.queued=20 r.read lost=0",
        "messages for others do not wait": (
            "r.modes:block r.clog p.send:1:20:b p.send:1:20:!/a p.goes published=2 slowed=0"
        ),
        **{
            f"under {key} publishers wait, too": f"e.modes:block e.clog p.send:1:20:{key} p.waits e.read p.goes"
            for key in ("a", "two_words", "!/app/x", "!", "!relay01/*")
        },
        "blocking again and again leaves no timers": "r.modes:block p.send:300 r.read slowed>20 timers<3",
        "answers do not take the place of messages": "r.clog:5 r.ask:30:!/bccn/whoami p.send:5:100 r.read lost=0",
        "requests behind a message that waits wait": (
            "r.modes:block r.clog p.send:1 p.subscribe:b p.patterns=0 r.read p.patterns=1"
        ),
        "a blocked publisher receives": "r.modes:block r.clog s.send:1 s.waits segment:30 s.read s.waits lost>0",
        "no client waits for itself": "r.modes:block/block r.send:50 r.goes",
        "two that wait for each other wait for their patience": (
            "r.modes:block s.modes:block r.send:20 s.send:20 r.waits +601 +601 published=40"
        ),
        "a publisher waits for one after the other": (
            "r.modes:block s.modes:block r.clog s.clog p.send:1 p.waits r.read p.waits s.read p.goes slowed>0 slowed<3"
        ),
        "a blocked publisher that closes loses nothing": (
            "r.modes:block r.clog p.subscribe:b p.send:50 p.waits p.close clients=2 r.read p.goes clients=1"
        ),
        "a client that half-closes gets its queue": "r.clog:15 r.unsubscribe:a r.shut r.read r.queued=0 lost=0",
        "and one that half-closes still receives": (
            "r.modes:block r.clog p.subscribe:b p.send:50 p.shut p.waits r.read p.goes segment:1:20:b p.read clients=2"
        ),
        "a blocker that ends lets publishers go on": "s.here r.modes:block r.clog p.send:1 p.waits r.close p.goes",
        "so does one that is ended": (
            "s.modes:block r.modes:block/error r.clog s.read p.send:1 p.waits segment:30 r.ended s.read p.goes ended=1"
        ),
        "or queues from now on": "s.here r.modes:block r.clog p.send:1 r.modes:queue p.goes lost=0",
        "or discards": "s.here r.modes:block r.clog p.send:1 r.modes:discard p.goes lost=1",
        "or ends rather": "s.here r.modes:block r.clog p.send:1 r.modes:error r.ended p.goes",
        "a publisher that its own message ends is read no more": (
            "s.modes:queue/error r.modes:block r.clog s.send:1 s.waits s.clog:20 r.read s.ended ended=1"
        ),
        "one that still blocks lets none go on": (
            "r.modes:block r.clog p.send:100 r.modes:block p.waits r.modes:/block p.waits r.modes:/error p.waits"
            " r.modes://stack p.waits r.ask:1 p.waits r.queued=1 r.modes:queue/block p.waits r.queued=20"
        ),
        "after its patience one blocks again only when it has read all": (
            "r.modes:block r.clog p.send:100 p.waits +601 p.goes published=100 lost>0 r.read:1 p.send:1 p.goes"
            " r.read r.clog p.send:1 p.waits"
        ),
        "one that has not read for long ends no publisher": "r.modes:block r.clog:20 ~601 p.send:1 p.goes ended=0",
        "nor where it blocks when it is full": "r.modes:/block r.clog:20 ~601 p.send:1 p.goes ended=0",
        "the end takes what publishers that wait have sent": (
            "w.here r.modes:block r.clog p.send:100:1 p.waits r.widen finish broadcast=100"
        ),
        "and what has gathered for a batch": "w.batch p.send:10 finish published=10",
        **{
            f"{modes} ends a client without harm to others": (
                f"w.batch r.modes:{modes} s.modes:discard {'segment:4 w.read ' * 15} r.ended ended=1 w.lost=0"
            )
            for modes in ("error/discard", "queue/error")
        },
    }),
    ({"queue": {"messages": 200, "bytes": 60 << 20}}, {
        "many that publish at once wait as soon as it is full": (
            "r.modes:/block r.clog:190 p.send:40 q.send:40 o.send:40 r.queued<201 r.read lost=0"
        ),
    }),
    ({"queue": {"bytes": 10_000}}, {
        "a message larger than the whole queue does not block for ever": (
            "r.modes:/block p.send:5 p.send:1:20000 p.send:1 r.read p.goes"
        ),
    }),
    ({"user": {"queue_bytes": 5000}}, {
        "a user without room waits where it blocks": "r.modes:/block p.send:100:500 p.waits r.bytes<5000 lost=0",
        "and does not where it discards": "s.clog:3 r.modes:discard/block p.send:20 p.goes lost>0",
    }),
    ({**LITTLE, "patience": 0.0}, {
        "without patience no publisher waits": "r.modes:block r.clog p.send:100 p.goes published=100",
    }),
    ({"patience": 600.0}, {
        # The kernel calls a socket writable only once most of what it keeps has been read.
        "one that reads little by little blocks": (
            f"w.modes:block w.clog:9 p.send:10 {'w.read:1 +601 p.waits ' * 5} +601 +601 p.goes"
        ),
        **{
            f"in order {order} a message that no packet can hold is a gap": (
                f"w.modes://{order} w.{how} w.clog segment:1 segment:1:1000000 segment:1:5 w.read lost=1 dropped=1"
            )
            for order, how in (("queue", "single"), ("stack", "batch"), ("random", "single"))
        },
    }),
    # One message may come at once, and the next one 100 s later.
    ({"user": {"rate": 0.01}}, {
        "all clients of a user share one rate": (
            "p.ask:100 p.send:1 p.goes q.send:25 q.waits limited=1 limit:user.rate:0 published=26"
            " q.send:500 q.goes limited=1"
        ),
        "a token of the rate resumes one publisher, by turns": (
            f"r.here u.send:1 p.send:2 q.send:2 o.send:2 +100 published=2 +100 published=3 {'+100 ' * 4} published=7"
            " r.read r.sources=upqopqo limited<8"
        ),
        "all that wait for the rate of a user have one timer": (
            "u.send:1 p.send:2 q.send:2 o.send:2 limited=3 timers=1 +100 published=2 timers<3"
        ),
        "none overtakes those that wait for the rate": (
            "r.here p.send:1 q.send:1 q.waits ~100 o.send:1 o.waits +0 +100 r.read r.sources=pqo"
        ),
        "one that ends waits for the rate no longer": (
            "r.here p.send:1 q.send:1 o.send:1 u.send:1 q.end +100 r.read r.sources=po u.end p.send:1 +100 p.goes"
        ),
        "another rate holds at once": "p.send:1 q.send:1 limit:user.rate:0.02 published=1 +50 published=2",
        "the end takes what was slowed down": "w.here p.send:50 p.close finish published=50",
    }),
    (LITTLE, {
        "a queue that is made shorter keeps what waits": (
            "r.clog:20 limit:queue.messages:5 segment:1 r.queued=20 r.read lost=1"
        ),
        "one that is made longer takes more": "r.clog:20 limit:queue.messages:30 segment:5 r.queued=25 r.read lost=0",
        "fewer bytes hold at once": "r.clog:5 limit:queue.bytes:5000 segment:1 r.queued=5 r.read lost=1",
        "so do fewer bytes of a user": "r.clog:5 limit:user.queue_bytes:5000 segment:1 r.queued=5 r.read lost=1",
        "publishers go on as soon as there is more room": (
            "r.modes:/block p.send:50 p.waits limit:queue.messages:1000 p.goes r.read lost=0"
        ),
        "their wait ends by the new patience": "r.modes:block r.clog p.send:1 ~100 p.waits limit:patience:50 p.goes",
        "and as long as a longer one": "r.modes:block r.clog p.send:1 limit:patience:900 +601 p.waits +601 p.goes",
    }),
]  # fmt: skip
ROWS: Final = [(settings, name, words) for settings, table in HISTORIES for name, words in table.items()]
#: clients of Ann, of Bob and of root, which block in one of two ways
BLOCKING: Final = {
    "a client blocks publishers of its user only": "rA.clog:20 pA.send:1 pA.waits pB.send:1 pB.goes p.send:1 p.goes",
    "one of root's blocks all": "r.clog:20 pA.send:1 pA.waits p.send:1 p.waits slowed=2",
}


@pytest.mark.parametrize(("settings", "name", "history"), ROWS, ids=[row[1] for row in ROWS])
def test_histories(tmp_path: Path, settings: dict[str, Any], name: str, history: str) -> None:
    with Hub(tmp_path, limits=bus_limits(**settings)) as hub:
        scenario.play(hub, history, settings)


@pytest.mark.parametrize("modes", ["block", "/block"])
@pytest.mark.parametrize("name", BLOCKING)
def test_histories_of_users(tmp_path: Path, name: str, modes: str) -> None:
    history = BLOCKING[name]
    with Hub(tmp_path, limits=bus_limits(**LITTLE), others=[("path", admit_all)]) as hub:
        scenario.play(hub, f"{history.partition('.')[0]}.modes:{modes} {history}", LITTLE)


@pytest.mark.parametrize("hard", [name.decode() for name in HARD_MODES])
@pytest.mark.parametrize("soft", [name.decode() for name in SOFT_MODES])
def test_in_every_mode_all_that_was_sent_is_got(tmp_path: Path, soft: str, hard: str) -> None:
    ends = "error" in (soft, hard) and (soft, hard) != ("block", "error") and soft != "discard"
    blocks = soft == "block" or (soft, hard) == ("queue", "block")
    part = "segment:1 p.send:1 " * 15 + ("" if ends else "r.read ")
    end = "r.ended ended=1" if ends else "ended=0"
    for order, how in product(("queue", "stack", "random"), ("single", "batch")):
        history = f"r.modes:{soft}/{hard}/{order} r.{how} {part * 4} {end} published=60 slowed{'>' if blocks else '='}0"
        (tmp_path / f"{order} {how}").mkdir()
        with Hub(tmp_path / f"{order} {how}", limits=bus_limits(**LITTLE)) as hub:
            scenario.play(hub, history, LITTLE)


def words(chance: random.Random) -> str:
    """Something that happens."""
    reader, publisher = chance.choice(("r", "sA", "t", "wB")), chance.choice(("p", "qA", "oB", "sA"))
    count, size = chance.randint(1, 8), chance.choice((1, 1, 1000, 1000, 9000))
    ends = ["error"] * (reader != "sA")
    soft = chance.choice((*["queue", "discard", "block", "block"] * 3, *ends))
    hard = chance.choice((*["discard", "block"] * 3, *ends))
    order = chance.choice(("queue", "queue", "stack", "random"))
    usual = [f"{publisher}.send:{count}:{size}", f"segment:{count}:{size}", f"{reader}.read", f"{reader}.ask:{count}"]
    seldom = [
        f"{reader}.modes:{soft}/{hard}",
        f"{reader}.{chance.choice(('batch', 'single'))}",
        "restart",
        "+0",
        "+0.1",
    ]
    rare = [f"{reader}.modes://{order}", f"limit:user.rate:{chance.choice((0, 2000))}", "+601"]
    return chance.choice([*usual * 6, *seldom * 2, *rare])


@pytest.mark.parametrize(
    "history",
    [
        "r.modes:block r.clog p.send:5 p.waits restart p.waits r.read p.goes lost=0 broadcast=5",
        "r.clog:20 p.here restart r.queued=20 r.read lost=0 p.send:5 p.goes",
    ],
    ids=["publishers that wait", "messages that wait"],
)
def test_the_next_daemon_goes_on_with(tmp_path: Path, history: str) -> None:
    with Site(tmp_path, limits=bus_limits(**LITTLE)) as hub:
        scenario.play(hub, history, LITTLE)


@pytest.mark.parametrize("seed", range(10))
def test_whatever_happens_every_message_is_accounted_for(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    queue, user = {"messages": 8, "bytes": 20_000}, {"queue_bytes": chance.choice((40_000, 4 << 20))}
    settings: dict[str, Any] = {"queue": queue, "user": user, "patience": chance.choice((60.0, 0.02))}
    with Site(tmp_path, limits=bus_limits(**settings), others=["path"]) as hub:
        scenario.play(hub, f"r.here sA.here t.here wB.here {' '.join(words(chance) for _ in range(80))}", settings)


@pytest.mark.parametrize("short", [0, 1, 50, 100])
def test_bytes_of_meta_count_before_a_publisher_goes_on(tmp_path: Path, short: int) -> None:
    with Hub(tmp_path, limits=bus_limits(queue={"messages": 10_000, "bytes": 20_000})) as hub:
        one, publisher, part = slow(hub, b"a"), hub.connect(), b"x" * 1000
        mode(one, hard="block")
        one.send(frames.request(frames.META_ON))
        one.all()
        count = clog(hub, one, 15, part)
        # As it was sent it still fits, but not with what meta puts before it.
        room = 20_000 - one.client.queue.bytes - len(b"MSG a\0") - short
        publisher.send(b"MSG a\0" + b"x" * room, *numbered(0, 50, part))
        hub.settle()
        assert publisher.client.published == 0
        assert one.client.queue.bytes <= 20_000
        assert gaps(collect(one, count + 51)) == 0
        assert dropped(hub) == {}


def test_a_full_queue_blocks_until_half_of_it_was_read(small: Hub) -> None:
    one, publisher = slow(small, b"a"), small.connect()
    mode(one, hard="block")
    publisher.send(*numbered(0, 200, b"x" * 1000))
    small.settle()
    published, before = small.bus.counters.published, one.client.queue.messages
    assert before == 20
    while small.bus.counters.published == published:
        one.waiting()
        before = one.client.queue.messages
        small.turn(2)
    # Half of the queue had been taken, and not more than one look at the socket before.
    assert before > 10 or one.client.queue.messages >= 10


def test_a_slow_reader_with_room_resumes_few_publishers(small: Hub) -> None:
    one, publishers = slow(small, b"a"), [small.connect() for _ in range(20)]
    mode(one, soft="block")
    clog(small, one)
    for publisher in publishers:
        publisher.publish(b"a", b"y" * 3000)
        small.settle()
    while small.bus.counters.published < len(publishers):
        before, held = small.bus.counters.published, small.bus.counters.held["slow_reader"]
        one.waiting()
        small.turn()
        # Besides those that could publish only one was tried.
        assert small.bus.counters.held["slow_reader"] - held <= max(1, small.bus.counters.published - before)


def test_a_client_that_blocks_without_reading_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Hub(tmp_path, limits=bus_limits(patience=0.01)) as hub:
        one, publisher = slow(hub, b"a"), hub.connect()
        mode(one, soft="block")
        clog(hub, one)
        publisher.publish(b"a", b"x")
        turn_until(hub.loop, lambda: hub.bus.counters.published, "the end of patience")
    (record,) = [one for one in caplog.records if getattr(one, "event", "") == "client_not_reading"]
    assert vars(record)["remedy"]
