"""What both clients make of what a daemon sends, refuses and forgets; the words are in `scenario`."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.client.scenario import Player
from tests.client.sessions import Bare, Join, both

pytestmark = pytest.mark.usefixtures("nothing_stays_open")

META: Final = "CMSG_!/bccn/meta/on"
BATCH: Final = "CMSG_!/bccn/batch/on"
#: what a client says first
SAID: Final = f"{META}|{BATCH}"
TAG: Final = "CMSG_!/bccn/tag"

#: histories by the options of the connection
HISTORIES: Final[list[tuple[dict[str, Any], dict[str, str]]]] = [
    ({}, {
        "a subscription takes what matches it": (
            "sub:a/ c.sub:a/door/*,b l.sub:a/late >a/x=1 >a/door/1=2 >b=3 >!=4 >a/late=5 >a/door/2=6"
            # It waits until its first use.
            " c.read:2,3,6 read:1,4 l.read:5 >a/door/1=7 >a/late=8 >a/x=9 read:9 l.read:8 c.read:7"
            f" said:{SAID}|SUB_a/|SUB_a/door/*|SUB_b|SUB_a/late"
        ),
        "a message is given to each subscription that it matches": (
            "w.sub:a/ n.sub:a/b w.use n.use >a/b=1 >a/c=2 w.read:1,2 n.read:1 w.close n.close sync >a/b=3 read:3"
            f" said:{SAID}|SUB_a/|SUB_a/b|UNSUB_a/|UNSUB_a/b"
        ),
        "a closed subscription is withdrawn, and a dropped one": (
            "c.sub:a c.use >a=1 c.read:1 c.close c.read c.next:none c.close >a=2 x.sub:a x.read:2 x.drop sync"
            f" heard:UNSUB_a >a=3 read:3 said:{SAID}|SUB_a|UNSUB_a|SUB_a|UNSUB_a d.restart next:reconnected said:{SAID}"
        ),
        "a refusal is raised by the iteration that it is about": (
            "answer:SUB_a:b=1,?not_permitted=a,a=2 answer:UNSUB_a:?not_subscribed=a"
            " o.sub:b m.sub:a o.read:1 next:?not_permitted=a sub:a o.read:1 m.read:2 m.read:x~not_permitted m.read:2"
            # One that is about no subscription is never lost on a program that reads nothing else.
            " m.close publish:two_words >?bad_channel=two_words o.read:x~bad_channel sync"
        ),
        "a refusal is raised in its place": (
            "answer:SUB_a:b=1,?not_permitted=a,b=2 sub:a read:1 read:x~not_permitted read:2"
        ),
        "every subscription counts gaps and absences": (
            "a.sub:a b.sub:b a.use b.use >gap3 >a=1 >b=2 a.read:1 b.read:2 a.lost=3 b.lost=3 d.restart"
            " a.next:reconnected >b=3 b.read:3 b.reconnects=1 next:gap3 next:reconnected"
        ),
        **{
            f"of gaps of {first} and {second} an unknown one is left": (
                f"s.sub:a:1 e.sub:end s.use e.use >a=1 >a=2 >gap{first} >gap{second} >a=3 >end=1 e.read:1 s.read:1"
                " s.next:gap0 s.lost=0"
            )
            for first, second in ((7, 0), (0, 7))
        },
        "a subscription has a bound of its own": (
            "s.sub:a:3 e.sub:end s.use e.use >a=1 >a=2 >a=3 >a=4 >a=5 >end=1 e.read:1 s.dropped=2 s.lost=0 e.dropped=0"
            " s.read:1,2,3 s.next:gap2 s.lost=2"
        ),
        "changes while the daemon is away are in force later": (
            "g.sub:gone d.stop notice m.sub:made a.sub:a b.sub:a g.close a.close d.start next:reconnected >made=1 >a=2"
            f" m.read:1 b.read:2 said:{SAID}|SUB_made|SUB_a d.restart next:reconnected said:{SAID}|SUB_made|SUB_a"
        ),
        "asking keeps what comes before the answer": (
            "answer:SUB_a:a=1,a=2+3 answer:CMSG_!/bccn/whoami:a=4+5,CMSG_!/bccn/whoami=me,a=6+7"
            " sub:a next:1 identity sync read:2,3,4,5,6,7"
        ),
        "a sync tells of a daemon that has gone unconfirmed": (
            "publish:a:confirmed sync d.restart sync publish:a:lost heard:MSG_a=lost d.restart sync~connection_lost"
            f" publish:a:after said:{SAID}|MSG_a=after"
        ),
        "modes are said at once, and the latest to the next daemon": (
            "sub:a,b/,a tag:door echo:on echo:off blocking:queue blocking:block blocking:-:error"
            " blocking:-:discard order:random order:stack local:on unsubscribe:b/"
            " blocking:never~bad_mode blocking:-:queue~bad_mode order:up~bad_mode"
            f" said:{SAID}|SUB_a|SUB_a|SUB_b/|{TAG}=door|CMSG_echo/on|CMSG_echo/off|CMSG_blocking/soft/queue"
            "|CMSG_blocking/soft/block|CMSG_blocking/hard/error|CMSG_blocking/hard/discard|CMSG_order/random"
            "|CMSG_order/stack|CMSG_!/bccn/local/on|UNSUB_b/"
            f" d.restart publish:a:after said:{META}|{TAG}=door|{BATCH}|CMSG_echo/off|CMSG_blocking/soft/block"
            "|CMSG_blocking/hard/discard|CMSG_order/stack|CMSG_!/bccn/local/on|SUB_a|SUB_a|MSG_a=after"
        ),
        "a mode that is refused is not asked for again": (
            f"answer:{TAG}=two_words:?bad_tag=two_words answer:{TAG}=mine:?not_permitted=!/bccn/tag"
            " answer:CMSG_!/bccn/local/on:?unknown_control=!/bccn/local/on tag:fine tag:two_words~bad_tag"
            f" tag:mine~not_permitted local:on~unknown_control sync d.restart said:{META}|{TAG}=fine|{BATCH}"
            f" tag: d.restart said:{SAID}"
        ),
        "a daemon that knows no batches is used without": (
            f"answer:{BATCH}:?unknown_control=!/bccn/batch/on d.restart next:reconnected >a=1 read:1 sync"
        ),
        "a sync gives what was refused since the last": (
            "answer:SUB_a:a=1 answer:MSG_two_words=x:?bad_channel=two_words answer:UNSUB_b:?not_subscribed=b"
            " sub:a publish:two_words:x unsubscribe:b sync:?bad_channel=two_words,?not_subscribed=b sync next:1"
            " publish:two_words:x next:?bad_channel=two_words"
        ),
        "what cannot be sent is refused here": (
            "sub:a subscribe:b:=x~bad_pattern unsubscribe:a:a=x~bad_pattern listen:=x:-~bad_pattern"
            " respond:a=:-~bad_pattern publish:a=b~bad_channel send_to:relay01/=:x~bad_channel send_to:~bad_target"
            " request:a=b~bad_channel ask:!/bccn/stats=clients~unknown_control publish:a:much~too_long"
            f" said:{SAID}|SUB_a d.restart next:reconnected said:{SAID}|SUB_a"
        ),
        "what speaks no frames is no daemon": "sync >a=1 >GET_/ >a=2 next:1 next:reconnected",
    }),
    ({"batch": False}, {
        "batches are asked for unless they are declined": (
            f"said:{META} batch:on d.restart said:{SAID}"
            f" batch:off d.restart said:{META}|CMSG_!/bccn/batch/off"
        ),
    }),
    ({"dialect": "sbus-dot"}, {
        "another dialect is asked for and used": (
            f"s.sub:a.b. s.use >a.b.c=1 s.read:1 said:{META}|CMSG_!/bccn/dialect=sbus-dot|{BATCH}|SUB_a.b."
        ),
    }),
    ({"reconnect": False}, {
        "without reconnecting a loss ends what has come": (
            "sync >a=1 >a=2+3 d.restart publish:a~connection_lost publish:a~connection_lost next:1 next:2 next:3"
            " next:x~connection_lost sync~connection_lost identity~connection_lost read:x~connection_lost"
            " sub:a~connection_lost unsubscribe:a~connection_lost"
        ),
        "and so does what speaks no frames": "sync >GET_/ next:x~connection_lost",
    }),
]  # fmt: skip
ROWS: Final = {name: (options, words) for options, table in HISTORIES for name, words in table.items()}


@both
@pytest.mark.parametrize("name", ROWS)
def test_histories(bare: Bare, join: Join, name: str) -> None:
    options, history = ROWS[name]
    with join(bare.address, **options) as bus:
        Player(bare, bus).play(history)


@both
def test_what_happens_is_an_event_and_logged(bare: Bare, join: Join, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "bccnd.client"), join(bare.address, away=True) as bus:
        Player(bare, bus).play(
            "sync connected=1 d.stop next:away connected=0 d.start next:reconnected sync connected=1"
            " >gap3 >?bad_channel=x next:gap3 next:?bad_channel=x"
        )
    assert not bus.connected
    levels = [record.levelname for record in caplog.records if record.name == "bccnd.client"]
    assert levels == ["WARNING", "INFO", "WARNING", "WARNING"]
