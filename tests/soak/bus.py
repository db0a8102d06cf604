"""Random frames from many clients of a real daemon, held to a model: `python -m tests.soak.bus --minutes 10`.

Every client is a bare socket, some of them other users'. After every step the publisher waits for the echo of a sync,
and then each client must have exactly what the model says, in order; a client that does not read for a while must
later find every message or a gap in its place. Some are in batch mode, now and then: all that differs for them is how
their messages are wrapped. In the end nothing may be left: no descriptor, no charge, no memory.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import sys
import tempfile
import time
from collections import Counter, deque
from contextlib import nullcontext
from pathlib import Path
from typing import Final

from bccnd.core import bccn1, frames
from bccnd.errors import BadDatagram, BadFrame
from tests.core import naive
from tests.e2e.harness import Daemon, Wire, acting_as, datagram, wait

#: users beside root, of whom the last is held to a rule; without root there is only who we are
OTHERS: Final = (61_001, 61_002)
HELD: Final = 61_002
TOKENS: Final = (b"a", b"b", b"ab", b"c1")
MARKS: Final = (b"*", b">", b"", b"a*", b"+")
QUEUE: Final = 64
#: what a client is asked for and has no answer to
SILENT_REQUESTS: Final = (
    *(b"echo/on", b"echo/off", b"!/bccn/meta/on", b"!/bccn/meta/off", b"!/bccn/local/off"),
    *(b"order/queue", b"order/stack", b"order/random", b"blocking/soft/queue", b"blocking/soft/discard"),
    *(b"blocking/soft/block", b"blocking/hard/discard", b"blocking/hard/block"),
    *(frames.BATCH_ON, frames.BATCH_ON, frames.BATCH_ON, frames.BATCH_OFF, frames.BATCH_OFF),
)


class Client:
    """One connection, and what it must find in its socket."""

    def __init__(self, bus: str, uid: int) -> None:
        self.uid, self.gid = uid, uid if uid in OTHERS else os.getegid()
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with acting_as(uid) if uid in OTHERS else nullcontext():
            self.sock.connect(bus)
        self.sock.setblocking(False)
        self.patterns: Counter[bytes] = Counter()
        self.echo, self.meta, self.batch, self.tag = True, False, False, b""
        self.base = b""
        #: frames as they are to be, or a prefix and an ending of them where something in between cannot be known
        self.expected: deque[bytes | tuple[bytes, bytes]] = deque()
        self.asleep = False
        self.syncs = 0
        #: packets of a batch, and the messages that were in them
        self.batches = self.in_batches = 0

    @property
    def identity(self) -> bytes:
        return self.base + (b"/" + self.tag if self.tag else b"")

    def send(self, packet: bytes) -> None:
        self.sock.setblocking(True)
        self.sock.send(packet)
        self.sock.setblocking(False)

    def sync(self) -> None:
        """Wait until the daemon has dealt with all that was sent, and check what came before the echo."""
        self.syncs += 1
        echo = frames.control(frames.SYNC, b"%d" % self.syncs)
        self.expected.append(echo)
        self.sock.setblocking(True)
        self.sock.settimeout(20)
        self.sock.send(frames.request(frames.SYNC, b"%d" % self.syncs))
        while self.expected:
            self.check(self.sock.recv(1 << 20))
        self.sock.setblocking(False)

    def look(self) -> None:
        """Everything that is expected must be there in a moment, and nothing else."""
        # A batch is sent at the end of the round, which is behind the answer that somebody else has waited for; and
        # what the segment brings goes out to one after the other, of whom the watcher may be the first.
        patience = time.monotonic() + 20
        while True:
            try:
                packet = self.sock.recv(1 << 20)
            except BlockingIOError:
                if not self.expected or time.monotonic() > patience:
                    break
                time.sleep(0.0001)
                continue
            self.check(packet)
        assert not self.expected, f"{self.identity!r} has not got {self.expected[0]!r}"

    def opened(self, packet: bytes) -> list[bytes]:
        """The frames of a packet: messages come in batches to those who want that, and to nobody else."""
        is_batch = packet.startswith(frames.MSGS + b" ")
        assert is_batch == (self.batch and not packet.startswith(b"CMSG ")), f"{self.identity!r} has got {packet!r}"
        if not is_batch:
            return [packet]
        assert len(packet) <= frames.MAX_BATCH
        found = frames.read_batch(packet)
        self.batches += 1
        self.in_batches += len(found)
        return found

    def check(self, packet: bytes) -> None:
        for frame in self.opened(packet):
            assert self.expected, f"{self.identity!r} has got {frame!r} and should not have"
            wanted = self.expected.popleft()
            assert fits(wanted, frame), f"{self.identity!r} has got {frame!r} for {wanted!r}"

    def wake(self) -> None:
        """Read all that has come while asleep: each message, or a gap in its place."""
        self.asleep = False
        skipped = 0
        quiet = time.monotonic() + 20
        while self.expected:
            try:
                packet = self.sock.recv(1 << 20)
            except BlockingIOError:
                assert time.monotonic() < quiet, f"{self.identity!r} waits in vain for {self.expected[0]!r}"
                time.sleep(0.001)
                continue
            if packet.startswith(b"CMSG !/bccn/gap\0"):
                lost = int(packet.partition(b"\0")[2])
                assert lost <= len(self.expected)
                skipped += lost
                for _ in range(lost):
                    self.expected.popleft()
            else:
                self.check(packet)


def fits(wanted: bytes | tuple[bytes, bytes], packet: bytes) -> bool:
    if isinstance(wanted, bytes):
        return packet == wanted
    return packet.startswith(wanted[0]) and packet.endswith(wanted[1])


class Soak:
    """A daemon, its clients and the model of what they must get."""

    def __init__(self, daemon: Daemon, clients: int, chance: random.Random) -> None:
        self.daemon = daemon
        self.chance = chance
        self.count = clients
        self.uids = (0, 0, *OTHERS) if os.geteuid() == 0 else (os.geteuid(),)
        self.clients: list[Client] = []
        self.steps: Counter[str] = Counter()
        self.seq = 0
        self.wire = Wire(daemon.port)
        self.watcher = Client(str(daemon.bus), os.geteuid())
        self.watcher.send(frames.subscribe(frames.TAP + b"accepted"))
        self.watcher.sync()

    def run(self, until: float) -> None:
        """Steps of all kinds until a time (monotonic)."""
        kinds = {
            self.publish: 12,
            self.subscribe: 6,
            self.unsubscribe: 3,
            self.request: 4,
            self.nonsense: 3,
            self.retag: 1,
            self.come_and_go: 2,
            self.from_the_wire: 4,
            self.fall_asleep: 1,
            self.wake_one: 1,
        }
        while time.monotonic() < until:
            while len(self.clients) < self.count:
                self.join()
            kind = self.chance.choices(list(kinds), list(kinds.values()))[0]
            self.steps[kind.__name__] += 1
            kind()
            for client in self.clients:
                if not client.asleep:
                    client.look()

    def leave(self) -> None:
        """End all clients but the one that watches."""
        for client in self.clients:
            self.part(client)
        self.clients.clear()

    def part(self, client: Client) -> None:
        """A client is no more; what it has seen is still of interest."""
        client.sock.close()
        self.steps["batches"] += client.batches
        self.steps["messages in batches"] += client.in_batches

    def close(self) -> None:
        self.leave()
        self.watcher.sock.close()
        self.wire.sock.close()

    # -- steps

    def join(self) -> None:
        client = Client(str(self.daemon.bus), self.chance.choice(self.uids))
        client.expected.append((b"CMSG !/bccn/whoami\0relay01/", b"/%d" % os.getpid()))
        client.send(frames.request(frames.WHOAMI))
        client.sync()
        comm = Path("/proc/self/comm").read_bytes().rstrip(b"\n")
        client.base = b"relay01/%b/%d" % (comm, os.getpid())
        if self.chance.random() < 0.3:
            client.batch = True
            client.send(frames.request(frames.BATCH_ON))
            client.sync()
        self.clients.append(client)

    def awake(self) -> Client:
        return self.chance.choice([client for client in self.clients if not client.asleep])

    def publish(self) -> None:
        client = self.awake()
        for _ in range(self.chance.choice((1, 1, 5, 40))):
            key = self.key(client)
            payload = self.chance.randbytes(self.chance.choice((0, 1, 20, 20, 300, 2000)))
            client.send(frames.message(key, payload))
            self.expect_published(client, key, payload)
        client.sync()

    def key(self, client: Client) -> bytes:
        other = self.chance.choice(self.clients)
        plain = b"/".join(self.chance.choices((*TOKENS, b"", b"x y", b"*"), k=self.chance.randint(1, 3)))
        secret = b"!/cred/%b/x/%b" % (b"/".join(self.credentials(other)), self.chance.choice(TOKENS))
        return self.chance.choice(
            (
                *([plain] * 10),
                *(b"!", b"!" + other.identity, b"!relay01", b"!relay01/*", b"!?", b"!/bccn/x", b"!/tap/accepted"),
                *(b"!/own/" + self.chance.choice(TOKENS), b"!/cred/1/2", secret, secret, secret),
            )
        )

    def credentials(self, of: Client) -> list[bytes]:
        """A client's gid, uid and pid, some of them left empty, or somebody else's."""
        own = [b"%d" % of.gid, b"%d" % of.uid, b"%d" % os.getpid()]
        return [self.chance.choice((one, one, one, b"", b"0", b"61001")) for one in own]

    def pattern(self, client: Client) -> bytes:
        plain = b"/".join(self.chance.choices((*TOKENS, *TOKENS, *MARKS), k=self.chance.randint(1, 3)))
        secret = b"!/cred/%b/%b" % (
            b"/".join(self.credentials(client)),
            self.chance.choice((b"", b"x/", b"x/a", b">", b"*/b")),
        )
        others = (b"", b"a/", b"!/", b"!/own/", b"!/>", b"!*", b"!/cred/", b"!/cred/*/*/*/x", b"!/tap/duplicate")
        return self.chance.choice((*([plain] * 8), *([secret] * 4), *others, b"p" * 2000))

    def subscribe(self) -> None:
        client = self.awake()
        for _ in range(self.chance.choice((1, 1, 3))):
            pattern = self.pattern(client)
            client.send(frames.subscribe(pattern))
            if len(pattern) > 1024:
                client.expected.append(frames.error("pattern_too_long", pattern[:64]))
            elif not self.may_hold(client, pattern):
                client.expected.append(frames.error("not_permitted", pattern))
            else:
                client.patterns[pattern] += 1
        client.sync()

    def unsubscribe(self) -> None:
        client = self.awake()
        held = [pattern for pattern in client.patterns.elements() if not pattern.startswith(b"!/cred/")]
        pattern = self.chance.choice([*held, b"never/held"]) if held else b"never/held"
        client.send(frames.unsubscribe(pattern))
        if client.patterns[pattern]:
            client.patterns[pattern] -= 1
        else:
            client.expected.append(frames.error("not_subscribed", pattern))
        client.sync()

    def request(self) -> None:
        client = self.awake()
        key = self.chance.choice(SILENT_REQUESTS)
        client.send(frames.request(key, self.chance.choice((None, b"", b"whatever"))))
        if key.startswith(b"echo/"):
            client.echo = key.endswith(b"on")
        elif key.startswith(b"!/bccn/meta/"):
            client.meta = key.endswith(b"on")
        elif key.startswith(b"!/bccn/batch/"):
            client.batch = key.endswith(b"on")
        client.sync()

    def retag(self) -> None:
        client = self.awake()
        tag = self.chance.choice((b"", b"t1", b"t2", b"7", b"no/good", b"star*", b"x" * 33))
        client.send(frames.control(frames.TAG, tag))
        if b"/" in tag or b"*" in tag or len(tag) > 32:
            client.expected.append(frames.error("bad_tag", tag))
        else:
            client.tag = tag
        client.sync()

    def nonsense(self) -> None:
        client = self.awake()
        for _ in range(self.chance.choice((1, 1, 10))):
            packet = self.chance.choice(
                (
                    *(
                        b"",
                        b"SUB",
                        b"MSG a/b",
                        b"MSG",
                        b"CMSG nothing/known",
                        b"CMSG blocking/soft/never",
                        b"sub a",
                        b"\0",
                    ),
                    self.chance.randbytes(self.chance.randint(1, 100)),
                )
            )
            try:
                verb, key, _ = frames.read(packet)
                reason, about = ("unknown_control", key) if verb == frames.CMSG else ("", b"")
            except BadFrame as bad:
                reason, about = bad.reason, packet[:64]
            if reason:
                client.send(packet)
                client.expected.append(frames.error(reason, about[:1024]))
        client.sync()

    def come_and_go(self) -> None:
        client = self.chance.choice(self.clients)
        self.clients.remove(client)
        self.part(client)
        # Gone for all others once somebody else's request is answered behind it.
        wait(lambda: self.daemon.metric("clients") == len(self.clients) + 1, "the client to be gone")

    def from_the_wire(self) -> None:
        found = [self.expect_from_the_wire() for _ in range(self.chance.choice((1, 1, 1, 50)))]
        self.wire.send(*found)
        self.watcher.sock.setblocking(True)
        while self.watcher.expected:
            self.watcher.check(self.watcher.sock.recv(1 << 20))
        self.watcher.sock.setblocking(False)

    def expect_from_the_wire(self) -> bytes:
        """A datagram, of which everybody is to get what is his."""
        self.seq += 1
        other = self.chance.choice(self.clients).identity.decode()
        plain = "/".join(token.decode() for token in self.chance.choices(TOKENS, k=self.chance.randint(1, 3)))
        chan = self.chance.choice((plain, plain, plain, "!", f"!{other}", "!relay01"))
        payload = self.chance.randbytes(self.chance.choice((0, 10, 300)))
        raw = datagram("relay02/far/1", self.seq, chan, payload)
        key = chan.encode()
        receivers = self.receivers(key)
        assert not chan.startswith("!") or receivers or chan == "!"
        for client in receivers:
            self.deliver(client, key, payload, b"relay02/far/1")
        self.deliver_to_watcher(key, payload, b"relay02/far/1")
        self.watcher.expected.append((b"MSG !/tap/accepted\0", b"|" + raw))
        return raw

    def fall_asleep(self) -> None:
        if sum(client.asleep for client in self.clients) < self.count // 4:
            client = self.awake()
            for request in (b"order/queue", b"blocking/soft/" + self.chance.choice((b"queue", b"discard"))):
                client.send(frames.request(request))
            client.send(frames.request(b"blocking/hard/discard"))
            client.sync()
            client.asleep = True

    def wake_one(self) -> None:
        sleepers = [client for client in self.clients if client.asleep]
        if sleepers:
            self.chance.choice(sleepers).wake()

    # -- the model

    def may_hold(self, client: Client, pattern: bytes) -> bool:
        if pattern.startswith(b"!/tap/"):
            return client.uid == os.geteuid()
        if pattern.startswith(b"!/cred/"):
            fields = pattern.split(b"/", 5)
            own = (b"%d" % client.gid, b"%d" % client.uid, b"%d" % os.getpid())
            if len(fields) < 6 or any(f not in (b"", o) for f, o in zip(fields[2:5], own, strict=True)):
                return False
        return client.uid != HELD or pattern.startswith(b"a/")

    def expect_published(self, client: Client, key: bytes, payload: bytes) -> None:
        packet = frames.message(key, payload)
        refused = ""
        if key.startswith((b"!/bccn/", b"!/tap/")) or key == b"!/cred/1/2":
            refused = "reserved_key"
        elif client.uid == HELD and not key.startswith(b"a/"):
            refused = "not_permitted"
        else:
            legal = False
            if not key.startswith(b"!/"):
                try:
                    bccn1.check_chan(key)
                    legal = True
                    if len(payload) > 1000:
                        refused = "too_long"
                except BadDatagram as bad:
                    refused = bad.reason
            for receiver in self.receivers(key):
                if receiver is client and not client.echo:
                    continue
                if legal:
                    self.deliver(receiver, key, payload, client.identity)
                else:
                    receiver.expected.append(packet)
            self.deliver_to_watcher(key, payload, client.identity)
        if refused:
            client.expected.append(frames.error(refused, key[:1024]))

    def deliver(self, client: Client, key: bytes, payload: bytes, src: bytes) -> None:
        if client.meta:
            client.expected.append((b"MSG %b\0%b:" % (key, src), b"|" + payload))
        else:
            client.expected.append(frames.message(key, payload))

    def deliver_to_watcher(self, key: bytes, payload: bytes, src: bytes) -> None:
        """It has subscribed to nothing else, and gets what everybody gets."""
        if key == b"!" or (key.startswith(b"!relay01") and self.is_addressed(key, self.identity_of_watcher())):
            self.watcher.expected.append(frames.message(key, payload))

    def identity_of_watcher(self) -> bytes:
        return self.clients[0].base

    def receivers(self, key: bytes) -> list[Client]:
        return [client for client in self.clients if self.gets(client, key)]

    def gets(self, client: Client, key: bytes) -> bool:
        held = [pattern for pattern, count in client.patterns.items() if count]
        if key.startswith(b"!/cred/"):
            return any(self.gets_secret(client, pattern, key) for pattern in held if pattern.startswith(b"!/cred/"))
        if key.startswith(b"!/"):
            special = (b"!/cred/", b"!/tap/")
            bus = [pattern for pattern in held if pattern.startswith(b"!") and not pattern.startswith(special)]
            return any(naive.matches("path", pattern, key) for pattern in bus)
        if key.startswith(b"!"):
            return key == b"!" or self.is_addressed(key, client.identity)
        return any(naive.matches("path", pattern, key) for pattern in held if not pattern.startswith(b"!"))

    @staticmethod
    def is_addressed(key: bytes, identity: bytes) -> bool:
        target = key[1:]
        if target.startswith((b"?", b"/")):
            return False
        if target.endswith(b"/*"):
            target = target[:-2]
        elif target.rpartition(b"/")[2].isdigit():
            return identity == target
        return identity == target or identity.startswith(target + b"/")

    @staticmethod
    def gets_secret(client: Client, pattern: bytes, key: bytes) -> bool:
        own = (b"%d" % client.gid, b"%d" % client.uid, b"%d" % os.getpid())
        asked, named = pattern.split(b"/", 5), key.split(b"/", 5)
        for a, n, o in zip(asked[2:5], named[2:5], own, strict=True):
            if n != a and not (not a and n == o):
                return False
        return naive.matches("path", b"x/" + asked[5], b"x/" + named[5])


SETTINGS: Final = {
    "bus": {"mode": "0666", "queue": {"messages": QUEUE}},
    "dedup": {"sanity": 65_536},
    "access": [{"user": HELD, "publish": ["a/"], "subscribe": ["a/"]}, {"publish": [""], "subscribe": [""]}],
}


def soak(seconds: float, clients: int, seed: int) -> Counter[str]:
    """Run a daemon of its own under random frames; how often each kind of step was taken."""
    with tempfile.TemporaryDirectory() as above, Daemon(Path(above) / "soak", dict(SETTINGS)) as daemon:
        for folder in (daemon.folder, daemon.folder.parent):  # other users must get to the socket
            folder.chmod(0o755)
        assert daemon.process is not None
        descriptors = Path(f"/proc/{daemon.process.pid}/fd")
        empty = len(list(descriptors.iterdir()))
        run = Soak(daemon, clients, random.Random(seed))
        begun = time.monotonic()
        run.run(begun + seconds / 4)
        warm = daemon.memory()
        run.run(begun + seconds)
        for client in run.clients:
            if client.asleep:
                client.wake()
        run.leave()
        wait(lambda: daemon.metric("clients") == 1, "all but the watcher to be gone")
        with daemon.connect() as last:  # what the others were charged for is theirs no more
            (root,) = json.loads(last.ask(frames.STATS, b"users"))["items"]
        assert root == {"uid": os.geteuid(), "clients": 2, "subscriptions": 1, "queued_bytes": 0}
        run.close()
        wait(lambda: daemon.metric("clients") == 0, "all clients to be gone")
        assert daemon.metric("queue_bytes") == daemon.metric("subscriptions") == 0
        assert daemon.metric("clients_ended_total") == daemon.metric("clients_refused_total") == 0
        assert daemon.metric("deliveries_dropped_total", reason="user_queue_bytes") == 0
        wait(lambda: len(list(descriptors.iterdir())) <= empty, "all descriptors to be closed")
        grown = daemon.memory() - warm
        assert grown < 24 << 20, f"grown by {grown} bytes"
        run.steps["messages"] = int(daemon.metric("published_total"))
        run.steps["deliveries"] = int(daemon.metric("deliveries_total"))
        run.steps["lost to sleepers"] = int(daemon.metric("deliveries_dropped_total"))
    return run.steps


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    given = parser.parse_args()
    print(f"seed {given.seed}: {given.clients} clients, {given.minutes:g} minutes", flush=True)
    steps = soak(given.minutes * 60, given.clients, given.seed)
    for name, count in sorted(steps.items()):
        print(f"{count:12,} {name}")
    print("every message was where it had to be")
    return 0


if __name__ == "__main__":
    sys.exit(main())
