"""Clients that read slowly: their modes, rates of users, and which publishers wait; the words are in `scenario`."""

from __future__ import annotations

import os
import random
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest

from bccnd.bus.clients.client import HARD_MODES, SOFT_MODES
from bccnd.core.wire.frames import MAX_PACKET
from tests.bus import scenario

#: little for each client, and a patience that does not end before a test does
LITTLE: Final[dict[str, Any]] = {"queue": {"messages": 20, "bytes": 100_000}, "patience": 600.0}

#: bytes of the longest message that a packet holds under its key
LARGEST: Final = MAX_PACKET - 12
SOFT, HARD = ([name.decode() for name in names] for names in (SOFT_MODES, HARD_MODES))


def in_modes(soft: str, hard: str) -> str:
    """Clients in these modes and each order; they read now and then, unless they are to be ended."""
    ends = "error" in (soft, hard) and (soft, hard) != ("block", "error") and soft != "discard"
    blocks = soft == "block" or (soft, hard) == ("queue", "block")
    part = "segment:1 p.send:1 " * 15 + ("" if ends else "r.read s.read t.read ")
    end = "r.ended s.ended t.ended ended=3" if ends else "ended=0"
    waits = "slowed>0" if blocks else "slowed=0 published=60"
    modes = f"r.modes:{soft}/{hard} s.modes:{soft}/{hard}/stack s.batch t.modes:{soft}/{hard}/random"
    return f"{modes} {part * 4} {end} {waits}"


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
        "blocking again and again leaves no timers": "timers r.modes:block p.send:300 r.read slowed>20 timers:2",
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
        **{f"in modes {'/'.join(modes)} all is got": in_modes(*modes) for modes in product(SOFT, HARD)},
        "messages of a round share a packet in batch mode": (
            "w.batch segment:5:1 w.read w.packets=1 segment:100:1 w.read w.packets=2 w.batch segment:1 w.read"
            " w.packets=3 w.single w.single segment:5:1 w.read w.packets=8 w.batch segment:5:1 w.read w.packets=9"
        ),
        **{
            f"{how}, a message that no packet can hold is a gap in its place": (
                f"w.{how} segment:2:1+1:20000000+2:1 w.read lost=1 dropped=1"
            )
            for how in ("batch", "single")
        },
        "more than a packet holds is in several, and what is large alone": (
            "w.batch segment:9:10000 w.read w.packets=2 segment:2:1+1:70000+2:1 w.read w.packets=5 lost=0"
        ),
        "answers that are not read are bounded": "r.ask:2000:!/bccn/whoami r.bytes<5000 lost=0 r.read p.send:1 p.goes",
        "the largest packets reach a client that has a small buffer": (
            f"r.here p.send:1 p.send:1:{LARGEST} p.send:1 p.send:1:{LARGEST} p.send:1 r.read lost=0 broadcast=3"
        ),
        "a full queue blocks until half of it was read": (
            "r.modes:/block r.clog:20 p.send:1 p.waits r.read:4 p.waits r.queued>10 r.read:9 p.goes lost=0"
        ),
        "one that has room resumes few publishers": (
            f"r.modes:block r.clog {' '.join(f'p{n}.send:1:3000' for n in range(20))} slowed=20 r.read slowed<60"
        ),
        "one that half-closes and waits for nothing is ended": "p.here p.shut clients=0",
        "publishers that wait do so under the next daemon": (
            "r.modes:block r.clog p.send:5 p.waits restart p.waits r.read p.goes lost=0 broadcast=5"
        ),
        "messages that wait are sent by the next daemon": (
            "r.clog:20 p.here restart r.queued=20 r.read lost=0 p.send:5 p.goes"
        ),
        **{
            f"with {modes} a client blocks publishers of its user only": (
                f"rA.modes:{modes} rA.clog:20 pA.send:1 pA.waits pB.send:1 pB.goes p.send:1 p.goes"
            )
            for modes in ("block", "/block")
        },
        **{
            f"with {modes} one of root's blocks all": (
                f"r.modes:{modes} r.clog:20 pA.send:1 pA.waits p.send:1 p.waits slowed=2"
            )
            for modes in ("block", "/block")
        },
    }),
    ({"queue": {"bytes": 20_000}}, {
        # As it was sent the first message still fits, but not with what is put before it.
        f"of {size} bytes, a message with meta waits for room": (
            f"r.meta r.modes:/block r.clog:15 p.send:1:{size} p.send:50 p.waits published=0 r.bytes<20001 r.read lost=0"
        )
        for size in (4708, 4758, 4808)
    }),
    ({"queue": {"messages": 1000}, "user": {"queue_bytes": 20_000}}, {
        "all queues of a user share one limit": (
            f"rA.here sA.here tA.here rB.here {'p.send:1 rA.charged<20001 ' * 15} rA.lost>0 rB.lost=0 rA.read sA.read"
        ),
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
            "timers u.send:1 p.send:2 q.send:2 o.send:2 limited=3 timers:1 +100 published=2 timers:2"
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
ROWS: Final = {name: (settings, words) for settings, table in HISTORIES for name, words in table.items()}


@pytest.mark.parametrize("name", ROWS)
def test_histories(tmp_path: Path, name: str) -> None:
    settings, history = ROWS[name]
    scenario.play(tmp_path, history, settings)


@pytest.mark.parametrize(
    ("event", "shown", "history"),
    [
        ("client_slow", {"patterns": "'a', 'b/'"}, "r.subscribe:b/ segment:100"),
        ("client_not_reading", {}, "r.modes:block r.clog p.send:1 +601 p.goes"),
    ],
)
def test_a_slow_client_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, event: str, shown: dict[str, str], history: str
) -> None:
    scenario.play(tmp_path, history, LITTLE)
    (record,) = [one for one in caplog.records if getattr(one, "event", "") == event]
    assert {"pid": os.getpid(), **shown}.items() <= vars(record)["fields"].items()


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


@pytest.mark.parametrize("seed", range(10))
def test_whatever_happens_every_message_is_accounted_for(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    queue, user = {"messages": 8, "bytes": 20_000}, {"queue_bytes": chance.choice((40_000, 4 << 20))}
    settings: dict[str, Any] = {"queue": queue, "user": user, "patience": chance.choice((60.0, 0.02))}
    history = f"r.here sA.here t.here wB.here {' '.join(words(chance) for _ in range(80))}"
    scenario.play(tmp_path, history, settings)
