"""The bus against a model, written from the documents: clients get exactly their messages, and nothing is left."""

from __future__ import annotations

import gc
import os
import random
from collections import Counter
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Final

import pytest

from bccnd.bus.clients.access_rules import Rule
from bccnd.core.matching.patterns import MAX_PATTERN
from bccnd.core.wire import frames
from tests.bus.leftovers import every_charge_is_what_is_kept, nothing_is_left
from tests.bus.packets import unbatched
from tests.core import naive
from tests.handover.successors import Site
from tests.limits import descriptors
from tests.rules import bus_limits
from tests.support import ANN, BOB, Peer, Who, dropped, own_identity, turn_until

#: how long the tests go on
STEPS: Final = int(os.environ.get("BCCND_STEPS", "250"))
LIMITS: Final = bus_limits(max_clients=9, max_subscriptions=24, user={"clients": 4, "subscriptions": 40})

PATTERNS: Final = [
    *(b"", b"a", b"a/", b"a/*", b"*/b", b"a/>", b">", b"*", b"a*b", b"b", b"two words", b"+/b", b"*/+", b"a.b", b"a."),
    *(b"!", b"!x", b"!*", b"!/", b"!/app/", b"!/app/x", b"!/>", b"!/*/", b"!/bccn/", b"!/tap/", b"!/tap/accepted"),
    *(b"!/cred////x", b"!/cred////", b"!/cred/", b"!/cred/*", b"!/cred/*///x", b"!/cred/0/0//x", b"!/cred//4001//x"),
    *(b"p" * 40, b"p" * MAX_PATTERN, b"p" * (MAX_PATTERN + 1)),
]
KEYS: Final = [
    *(b"a", b"a/b", b"a/b/c", b"b", b"", b"two words", b"a:b", b"a.b", b"a.b.c", b"p" * 40, b"!", b"!relay01/*"),
    *(b"!relay01/ann/*", b"!relay01/bob", b"!x", b"!?", b"!?/x", b"!two words"),
    *(b"!/app/x", b"!/app/x/y", b"!/", b"!/x"),
    *(b"!/bccn/x", b"!/tap/accepted", b"!/cred/x", b"!/cred////x", b"!/cred//4001//x", b"!/cred/0/0//x", b"!/cred///"),
    *(b"!/cred/%d///x" % ANN.gid, b"!/cred///%d/x" % os.getpid(), b"x" * 1025),
]
#: requests that are none
WRONG: Final = [
    *b", ,echo,echo/,echo/ON,echo/on/,echo/on , echo/on,echo/yes,echo/\xff,!/echo/on".split(b","),
    *b"blocking,blocking/soft,blocking/soft/,blocking/soft/queue/x,blocking/soft/QUEUE,blocking/soft/none".split(b","),
    *b"blocking/hard/queue,blocking/hard/,blocking/medium/block,order/,order/fifo,order/queue ".split(b","),
    *b"!/bccn/,!/bccn/WHOAMI,!/bccn/whoami/,!/bccn/meta,!/bccn/meta/,!/bccn/meta/on/,!/bccn/local".split(b","),
    *b"!/bccn/local/,!/bccn/gap,!/bccn/error,!/bccn/tags,!/bccn/tag/x,!/cred/,!/cred/whoami/,!/tap/".split(b","),
    *(b"whoami", b"SUB a", b"k" * 5000, b"nosuch", b"order/x"),
]
#: what Ann may do while the rules are in force, and which of the patterns above that covers, by her dialect
ANNS_RULE: Final = Rule(uid=ANN.uid, publish=(b"a/", b"!/app/", b"!"), subscribe=(b"a/", b"!/app/"), tag=False)
ANNS_PATTERNS: Final = {
    "path": {b"a/", b"a/*", b"a/>", b"a*b", b"!/app/", b"!/app/x"},
    # Where a wildcard is written in another way these are single keys, and a/* also takes a, or anything at all.
    "broker": {b"a/", b"a/>", b"!/app/", b"!/app/x"},
    "sbus-dot": {b"a/", b"a/>", b"!/app/", b"!/app/x"},
}
BOBS_RULE: Final = Rule(uid=BOB.uid, publish=(b"",), subscribe=(b"",), tap=True, tag=True)
RULES: Final = [ANNS_RULE, BOBS_RULE]


@dataclass
class Account:
    """One client, as the model sees it."""

    peer: Peer
    who: Who | None
    dialect: str
    base: bytes
    tag: bytes = b""
    patterns: dict[bytes, int] = field(default_factory=dict)
    echo: bool = True
    meta: bool = False
    local: bool = False
    due: list[tuple[bytes, ...]] = field(default_factory=list)

    @property
    def identity(self) -> bytes:
        return self.base + b"/" + self.tag if self.tag else self.base

    @property
    def count(self) -> int:
        return sum(self.patterns.values())


def is_legal(text: bytes) -> bool:
    return 0 < len(text) <= 1024 and all(0x21 <= byte <= 0x7E and byte not in b":|" for byte in text)


class Model:
    """Clients, their subscriptions, and the packets due to each."""

    def __init__(self) -> None:
        self.accounts: list[Account] = []
        self.ruled = False
        self.errors: Counter[str] = Counter()
        self.published = 0
        self.sent = 0

    def may_hold(self, one: Account, pattern: bytes) -> bool:
        if pattern.startswith(b"!/tap/"):
            return one.who is None or (self.ruled and one.who == BOB)
        if not self.ruled or one.who != ANN:
            return True
        return pattern in ANNS_PATTERNS[one.dialect]

    def may_publish(self, one: Account, key: bytes) -> bool:
        if not self.ruled or one.who != ANN:
            return True
        if key.startswith(b"!"):
            return key == b"!" or naive.matches("path", b"!/app/", key)
        return naive.matches("path", b"a/", key)

    def refuse(self, one: Account, reason: str, about: bytes) -> None:
        self.errors[reason] += 1
        one.due.append((b"CMSG", frames.ERROR, reason.encode() + b" " + about[:1024]))

    def take(self, one: Account, packet: bytes) -> None:
        verb, blank, rest = packet.partition(b" ")
        key, nul, payload = rest.partition(b"\0")
        if not packet:
            self.refuse(one, "empty", b"")
        elif not blank or verb not in (b"SUB", b"UNSUB", b"MSG", b"CMSG"):
            self.refuse(one, "unknown_verb", packet[:64])
        elif verb == b"SUB":
            self.subscribe(one, key)
        elif verb == b"UNSUB":
            self.unsubscribe(one, key)
        elif verb == b"CMSG":
            self.control(one, key, payload)
        elif not nul:
            self.refuse(one, "no_payload", packet[:64])
        else:
            self.publish(one, key, payload)

    def meant(self, one: Account, pattern: bytes) -> list[bytes]:
        if not pattern.startswith(b"!/cred/"):
            return [pattern]
        fields = pattern.removeprefix(b"!/cred/").split(b"/", 3)
        if len(fields) < 4:
            return []
        peer = one.peer.client.peer
        choices = []
        for wanted, own in zip(fields[:3], (peer.gid, peer.uid, peer.pid), strict=True):
            if wanted not in (b"", b"%d" % own):
                return []
            choices.append((wanted,) if wanted else (b"%d" % own, b""))
        return [b"!/cred/" + b"/".join((*chosen, fields[3])) for chosen in product(*choices)]

    def subscribe(self, one: Account, pattern: bytes) -> None:
        meant = self.meant(one, pattern)
        together = sum(other.count for other in self.accounts if other.who == one.who)
        if len(pattern) > MAX_PATTERN:
            self.refuse(one, "pattern_too_long", pattern[:64])
        elif not meant or not all(self.may_hold(one, each) for each in (pattern, *meant)):
            self.refuse(one, "not_permitted", pattern)
        elif one.count + len(meant) > LIMITS.max_subscriptions or together + len(meant) > LIMITS.user.subscriptions:
            self.refuse(one, "too_many_subscriptions", pattern)
        else:
            for each in meant:
                one.patterns[each] = one.patterns.get(each, 0) + 1

    def unsubscribe(self, one: Account, pattern: bytes) -> None:
        held = [each for each in self.meant(one, pattern) if each in one.patterns]
        for each in held:
            one.patterns[each] -= 1
            if not one.patterns[each]:
                del one.patterns[each]
        if not held:
            self.refuse(one, "not_subscribed", pattern[:MAX_PATTERN])

    def control(self, one: Account, key: bytes, payload: bytes) -> None:
        peer = one.peer.client.peer
        if key in (b"echo/on", b"echo/off"):
            one.echo = key == b"echo/on"
        elif key in (frames.META_ON, frames.META_OFF):
            one.meta = key == frames.META_ON
        elif key in (frames.LOCAL_ON, frames.LOCAL_OFF):
            one.local = key == frames.LOCAL_ON
        elif key in (frames.BATCH_ON, frames.BATCH_OFF):
            pass  # the same frames come, whichever way they are packed
        elif key == frames.WHOAMI:
            one.due.append((b"CMSG", key, one.identity))
        elif key == frames.SYNC:
            one.due.append((b"CMSG", key, payload))
        elif key == frames.CRED_WHOAMI:
            one.due.append((b"CMSG", key, b"!/cred/%d/%d/%d" % (peer.gid, peer.uid, peer.pid)))
        elif key == frames.TAG:
            if self.ruled and one.who == ANN:
                self.refuse(one, "not_permitted", frames.TAG)
            elif len(payload) > 32 or (payload and (not is_legal(payload) or any(byte in b"/*?!" for byte in payload))):
                self.refuse(one, "bad_tag", payload[:64])
            else:
                one.tag = payload
        elif key == frames.STATS:
            self.refuse(one, "unknown_listing", payload[:64] or b"")
        else:
            self.refuse(one, "unknown_control", key)

    def publish(self, one: Account, key: bytes, payload: bytes) -> None:
        self.published += 1
        secret = key.startswith(b"!/cred/")
        parts = key.split(b"/")
        whole = secret and len(parts) >= 6 and all(part.isdigit() or not part for part in parts[2:5])
        if key.startswith((b"!/bccn/", b"!/tap/")) or (secret and not whole):
            self.refuse(one, "reserved_key", key)
            return
        if not self.may_publish(one, key):
            self.refuse(one, "not_permitted", key)
            return
        bridged = is_legal(key) and not key.startswith((b"!?", b"!/"))
        for other in self.accounts:
            if (other is not one or one.echo) and self.gets(other, key, bridged):
                if other.meta and bridged:
                    other.due.append((b"META", key, one.identity, payload, b"local" if one.local else b""))
                else:
                    other.due.append((b"MSG", key, payload))
        if key.startswith(b"!/") or one.local:
            return
        if not is_legal(key):
            self.refuse(one, "bad_channel", key)
        elif not bridged:
            self.refuse(one, "bad_target", key)
        elif len(payload) > 1400:
            self.refuse(one, "too_long", key)
        else:
            self.sent += 1

    @staticmethod
    def gets(other: Account, key: bytes, bridged: bool) -> bool:
        if key.startswith(b"!/"):
            kind = b"!/cred/" if key.startswith(b"!/cred/") else b"!"
            mine = [
                text
                for text in other.patterns
                if text.startswith(kind)
                and not text.startswith(b"!/tap/")
                and (kind == b"!/cred/" or not text.startswith(b"!/cred/"))
            ]
            return any(naive.matches("path", text, key) for text in mine)
        if key == b"!":
            return True
        if key.startswith(b"!"):
            if not bridged:
                return False
            target = key[1:]
            last = target.split(b"/")[-1]
            if last.isdigit():
                return other.identity == target
            target = target.removesuffix(b"/*")
            return other.identity == target or other.identity.startswith(target + b"/")
        return any(naive.matches(other.dialect, text, key) for text in other.patterns if not text.startswith(b"!"))

    def restart(self, *, after_crash: bool) -> None:
        """Another daemon goes on: its counters start at 0."""
        self.errors.clear()
        self.published = 0
        if after_crash:
            for one in self.accounts:
                one.due.append((b"CMSG", frames.GAP, b"0"))

    def reload(self, ruled: bool) -> None:
        self.ruled = ruled
        for one in self.accounts:
            for pattern in list(one.patterns):
                if not self.may_hold(one, pattern):
                    del one.patterns[pattern]
                    self.refuse(one, "not_permitted", pattern)
            if one.tag and ruled and one.who == ANN:
                one.tag = b""
                self.refuse(one, "not_permitted", frames.TAG)


def naming(chance: random.Random, accounts: list[Account], rest: list[bytes]) -> bytes:
    """Return a key or pattern with some credentials of a client."""
    peer = chance.choice(accounts).peer.client.peer
    fields = (chance.choice([b"", b"%d" % own]) for own in (peer.gid, peer.uid, peer.pid))
    return b"!/cred/" + b"/".join((*fields, chance.choice(rest)))


def packet_of(chance: random.Random, one: Account, accounts: list[Account]) -> bytes:
    """Return a random packet of a client."""
    kind = chance.random()
    pattern = chance.choice([*PATTERNS, *[naming(chance, [one, one, *accounts], [b"x", b"", b"x/", b">", b"*"])] * 8])
    if kind < 0.25:
        return frames.subscribe(pattern) + chance.choice([b"", b"", b"\0", b"\0x"])
    if kind < 0.4:
        return frames.unsubscribe(chance.choice([*one.patterns, *one.patterns, pattern]))
    if kind < 0.8:
        secret = naming(chance, accounts, [b"x", b"y", b"x/y", b""])
        key = chance.choice([*KEYS, *[secret] * 8, b"!" + one.identity, b"!" + one.base])
        return frames.message(key, chance.choice([b"", b"x", b"\0", b"x:1|y", b"x" * 1000, b"x" * 3000]))
    if kind < 0.95:
        controls = [b"echo/on", b"echo/off", frames.META_ON, frames.META_OFF, frames.WHOAMI, frames.CRED_WHOAMI]
        controls += [frames.BATCH_ON, frames.BATCH_OFF, frames.LOCAL_ON, frames.LOCAL_OFF]
        wrong = [chance.choice(WRONG) for _ in range(3)]
        key = chance.choice([*controls, frames.SYNC, frames.TAG, frames.TAG, frames.STATS, *wrong])
        return frames.request(key, chance.choice([None, b"", b"x", b"door", b"a/b", b"t" * 32, b"t" * 33, b"a\0b"]))
    return chance.choice(
        [b"", b"MSG", b"MSG a", b"sub a", b"SUB", b"nonsense", b"\0" * 100, b" ", b"MSG  \0", b"X" * 500]
    )


def split_packet(packet: bytes, due: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Split a packet like the expected ones."""
    verb, key, payload = frames.read(packet)
    if due[0] == b"META":
        src, seq, received_ns, where, rest = frames.read_meta(payload)
        assert where == "local"
        assert received_ns > 0
        assert (seq == 0) == (len(rest) > 1400 or due[4] == b"local")
        return b"META", key, src, rest, due[4]
    return verb, key, payload


@pytest.mark.parametrize("seed", range(6))
def test_every_client_gets_exactly_its_messages(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    gc.collect()  # what tests before this one have left open
    before = descriptors()
    model = Model()
    delivered = delivered_before = 0
    checkers = ["path", "path", "broker", "sbus-dot"]
    with Site(tmp_path, limits=LIMITS, others=checkers[1:]) as hub:
        for step in range(STEPS):
            what = chance.random()
            if what < 0.05 or not model.accounts:
                who = chance.choice([None, ANN, BOB])
                checker = chance.randrange(len(checkers)) if who is None else chance.randrange(1, len(checkers))
                if sum(one.who == who for one in model.accounts) < 4 and len(model.accounts) < 9:
                    # All clients of the test process have one name and differ in their tags only.
                    peer = hub.connect(who=who, entrance=checker)
                    if who is None:
                        base = own_identity()
                    else:
                        assert peer.process is not None
                        base = b"relay01/%b/%d" % (who.program, peer.process.pid)
                    model.accounts.append(Account(peer, who, checkers[checker], base))
            elif what < 0.08:
                model.accounts.pop(chance.randrange(len(model.accounts))).peer.close()
                turn_until(hub.loop, lambda: len(hub.bus.clients) == len(model.accounts))
            elif what < 0.12:
                model.reload(chance.random() < 0.5)
                hub.rules = tuple(RULES if model.ruled else ())
                hub.reload(rules=hub.rules)
            elif what < 0.15:
                crashes = chance.random() < 0.5
                if crashes:
                    hub.crash()
                else:
                    hub.restart()
                delivered_before += delivered
                delivered = 0
                model.restart(after_crash=crashes)
            else:
                one = chance.choice(model.accounts)
                for _ in range(chance.randint(1, 8)):
                    packet = packet_of(chance, one, model.accounts)
                    model.take(one, packet)
                    one.peer.send(packet)
            hub.settle()
            for one in model.accounts:
                got, due, one.due = unbatched(one.peer.waiting()), one.due, []
                assert len(got) == len(due), (step, got, due)
                for packet, expected in zip(got, due, strict=True):
                    assert split_packet(packet, expected) == expected, step
                    delivered += expected[0] != b"CMSG"
                client = one.peer.client
                assert client.identity == one.identity
                assert hub.routes.patterns(client.fd) == one.patterns
                assert client.subscriptions == one.count
            every_charge_is_what_is_kept(hub)
            counters = hub.bus.counters
            assert counters.errors.all() == {reason: count for reason, count in model.errors.items() if count}
            assert (counters.published, counters.deliveries, len(hub.sent)) == (model.published, delivered, model.sent)
        assert dropped(hub) == {}
        assert set(counters.ended.all().values()) == set(counters.held.all().values()) == {0}
        assert delivered + delivered_before > STEPS / 10
        last: dict[bytes, int] = {}
        for datagram in hub.sent:
            src, seq = datagram.partition(b"]")[2].split(b":")[:2]
            assert int(seq) > last.get(src, 0), "a seq for two messages"
            last[src] = int(seq)
        for one in model.accounts:
            one.peer.close()
        turn_until(hub.loop, lambda: not hub.bus.clients)
        nothing_is_left(hub)
    assert descriptors() == before
