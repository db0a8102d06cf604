"""What is dropped is dropped for real here: page, metrics and log give it one name and one count."""

from __future__ import annotations

import hmac
import json
import os
import re
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import pytest

from bccnd.core.wire import frames
from bccnd.gateways.broker.codec import STRING
from bccnd.log.repeat_filter import MAX_RECORDS
from bccnd.monitoring.drop_catalog import DROPS
from bccnd.monitoring.drop_entry import Drop
from bccnd.net.http import MAX_CONNECTIONS
from tests.e2e.brokers import Broker, publication
from tests.e2e.harness import KEY, PATIENCE, Daemon, Wire, acting_as, datagram, seqpacket, wait
from tests.e2e.recorders import Recorder
from tests.support import free_port

#: what nothing from outside brings about, or what takes too much here; the tests of the parts do
ELSEWHERE: Final = {
    "datagrams/internal_error",
    *("clients_refused/bug", "clients_ended/bug", "visitors_refused/bug", "clients_ended/pid_reused"),
    *(f"sources_forgotten/{name}_evicted" for name in ("nameless", "own", "restarts", "dead")),
    "send_errors/send_errors",
    *("deliveries_dropped/too_big", "deliveries_dropped/match_limit"),
    *(f"client_errors/{name}" for name in ("no_signing_key", "send_failed", "listing_dropped")),
    *(f"{name}/{name}" for name in ("state_dropped", "clients_not_kept", "sources_not_kept", "notifications_lost")),
    "log_lines_dropped/lines_lost",
    *(f"gateway_dropped/{name}" for name in ("nameless", "late", "bus_full", "untrusted", "slow", "filtered")),
    *(f"gateway_dropped/{name}" for name in ("queue_full", "not_connected", "idle", "id_expired")),
    *(f"recorder_dropped_records/{name}" for name in ("disk", "spool_full")),
    *(f"recorder_{name}/recorder_{name}" for name in ("logs_torn", "logs_set_aside", "logs_removed", "files_removed")),
}
#: names of programs of other hosts
OTHER: Final = "h/p/1"


def key_of(drop: Drop) -> str:
    return f"{drop.family}/{drop.name}"


BY_KEY: Final = {key_of(drop): drop for drop in DROPS}
#: which of them each test below brings about
OF_THE_BROKER: Final = {
    f"gateway_dropped/{name}"
    for name in (
        *("malformed", "oversize", "no_topic", "duplicate_id", "no_id", "too_many_peers", "too_many_ids"),
        *("too_many_subscriptions", "state_dropped", "id_evicted", "socket_drops"),
    )
}
OF_THE_RECORDER: Final = {"recorder_tap_gap_records/recorder_tap_gap_records"}
OF_THE_DAEMON: Final = set(BY_KEY) - set(ELSEWHERE) - OF_THE_BROKER - OF_THE_RECORDER


# -- what is compared


def counted(daemon: Daemon, drop: Drop) -> int:
    """As the metrics have it, over all places."""
    labels = {drop.label: drop.name} if drop.label else {}
    return int(daemon.metric(f"{drop.family}_total", **labels))


def in_metrics(daemon: Daemon) -> dict[str, int]:
    """All that the metrics count and that is not zero; every name is there, if only with a zero."""
    page = daemon.page("/metrics")
    found: dict[str, int] = {}
    for key, drop in BY_KEY.items():
        label = f'{drop.label}="{drop.name}"' if drop.label else ""
        rows = re.findall(rf"^bccnd_{drop.family}_total(\{{[^}}]*\}})? (\S+)$", page, re.MULTILINE)
        values = [float(value) for labels, value in rows if label in labels]
        if not drop.family.startswith(("recorder_", "gateway_", "send_errors")):
            assert values, key
        if sum(values):
            found[key] = int(sum(values))
    return found


def on_page(daemon: Daemon) -> dict[str, int]:
    """All that the status page shows, by name and count; its own tests have each in its place."""
    found: Counter[str] = Counter()
    for one in json.loads(daemon.page("/status.json"))["drops"]:
        family = one["metric"].removeprefix("bccnd_").partition("_total")[0]
        found[f"{family}/{one['name']}"] += one["times"]
    return {key: count for key, count in found.items() if count and key in BY_KEY}


# -- what is brought about


def signed(body: bytes, magic: bytes = b"BCCN1") -> bytes:
    return b"%b[%d:hmac=%b]%b" % (magic, len(body), hmac.digest(KEY, body, "sha256")[:8].hex().encode(), body)


def ours(src: str, seq: int, chan: str, payload: bytes = b"") -> bytes:
    return datagram(src, seq, chan, payload, key=KEY)


def datagrams() -> Iterator[bytes]:
    """One for each verdict that a stranger can get."""
    yield ours(OTHER, 10, "x")
    yield ours(OTHER, 10, "x")  # duplicate
    yield ours(OTHER, 12, "x")
    yield ours(OTHER, 11, "x")  # stale
    yield ours(OTHER, 5000, "x")
    yield ours(OTHER, 13, "x")  # replayed
    yield ours(OTHER, 5001, "!elsewhere/p/1")  # not_addressed
    yield ours(OTHER, 5002, "x", b"y" * 1500)  # oversize
    yield b"noise"  # bad_envelope
    yield b"BCCN1[5:hmac=0123456789abcdef]too long"  # length_mismatch
    yield signed(b"a:1:x|", b"BCCN2")  # unsupported_version
    yield datagram(OTHER, 5003, "x")  # integrity_missing
    yield b"BCCN1[4:crc32=00000000]body"  # integrity_unknown
    yield datagram(OTHER, 5004, "x", key=b"another key, of another fleet___")  # integrity_failed
    yield signed(b"no fields")
    yield signed(b"a*:1:x|")
    yield signed(b"a:one:x|")
    yield signed(b"a:1:x y|")
    yield signed(b"a:1:!?x|")  # bad_target


def wrong_frames() -> Iterator[bytes]:
    """One for each reason for which a frame is refused."""
    yield from (b"", b"HELLO", b"MSG no payload", b"MSG x\0" + b"y" * frames.MAX_PACKET)
    yield b"SUB !/cred/1/2/3/x"  # not_permitted
    yield b"MSG !/link/\0nothing"
    yield b"SUB " + b"x" * 2000
    yield from (b"SUB one/%d" % number for number in range(41))  # one too many
    yield from (b"UNSUB never", b"MSG !/bccn/mine\0", b"MSG no channel\0", b"MSG !?x\0y", b"MSG a-b\0not for Perl")
    yield b"MSG a\0" + b"y" * 1450
    yield b"CMSG nonsense"
    yield from (frames.request(frames.TAG, b"a|b"), frames.request(frames.DIALECT, b"klingon"))
    yield from (frames.request(frames.DIALECT, b"sbus"), frames.request(frames.GATEWAY, b"nothing"))
    yield frames.request(frames.STATS, b"nothing")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """Everything is scarce here."""
    door = f"@bccn-drops-{os.getpid()}"
    one = Daemon(tmp_path / "a", start=False)
    one.configure(
        {
            "names": "perl-safe",
            "integrity": one.with_key(KEY),
            "segments": [{"address": "127.255.255.255", "port": one.port, "receive_buffer": "256KiB"}],
            "dedup": {"freshness": "monotonic", "horizon": 0.5, "expire": 1.0, "max_sources": 5},
            "repeat": [{"channels": "again", "copies": 3, "spacing": 0.2}],
            "bus": {
                "queue": {"messages": 200, "bytes": "64KiB"},
                "max_clients": 66,
                "max_subscriptions": 40,
                "user": {"clients": 64, "queue_bytes": "100KiB"},
                "sockets": [{"path": door, "mode": "0666"}, {"path": f"{door}-closed", "mode": "0600"}],
            },
        }
    )
    with one:
        one.start()
        yield one


def until(count: Callable[[], float], act: Callable[[], object], what: str) -> None:
    """Do something again until it is counted."""
    for _ in range(40):
        act()
        if count():
            return
    raise AssertionError(f"never counted: {what}")


def make_queues_overflow(daemon: Daemon, wire: Wire, stack: ExitStack) -> None:
    seqs = iter(range(10_000, 10**6))

    def client(*words: bytes) -> socket.socket:
        sock = stack.enter_context(daemon.raw())
        for word in (*words, frames.request(frames.SYNC, b"ready")):
            sock.send(word)
        assert sock.recv(65_536) == b"CMSG !/bccn/sync\0ready"
        return sock

    def fill(chan: str, name: str, payload: bytes) -> None:
        """Send on a channel that somebody does not read until something falls."""
        drop = BY_KEY[f"deliveries_dropped/{name}"]

        def act() -> None:
            before = daemon.metric("datagrams_received_total")
            wire.send(*(ours("f/p/1", next(seqs), chan, payload) for _ in range(100)))
            wait(lambda: daemon.metric("datagrams_received_total") >= before + 100, "the daemon to read")

        until(lambda: counted(daemon, drop), act, name)

    gone = client(b"SUB small")
    fill("small", "queue_messages", b"x")
    client(frames.request(frames.SOFT + b"discard"), b"SUB soft")
    fill("soft", "not_queued", b"x")
    client(frames.request(frames.SOFT + b"error"), b"SUB hard")
    fill("hard", "client_ended", b"x")
    client(b"SUB big")
    fill("big", "queue_bytes", b"x" * 1200)
    client(b"SUB bigger")
    fill("bigger", "user_queue_bytes", b"x" * 1200)
    silent = client()
    silent.setblocking(False)

    def ask() -> None:
        with suppress(BlockingIOError):
            for _ in range(500):
                silent.send(frames.request(frames.SYNC, b"x"))

    # What waits for the others is more than this user may have: the first that the kernel does not take is dropped.
    until(lambda: counted(daemon, BY_KEY["control_dropped/control_dropped"]), ask, "control_dropped")
    gone.close()
    wait(lambda: counted(daemon, BY_KEY["deliveries_dropped/client_gone"]), "client_gone")


def make_the_door_full(daemon: Daemon, stack: ExitStack) -> None:
    door, closed = (one["path"] for one in daemon.settings["bus"]["sockets"])

    def come(times: int) -> None:
        for _ in range(times):
            stack.enter_context(seqpacket(door.replace("@", "\0")))

    come(66)
    wait(lambda: counted(daemon, BY_KEY["clients_refused/too_many_clients_of_user"]), "too many of a user")
    with acting_as(65_534):
        come(4)
        stack.enter_context(seqpacket(closed.replace("@", "\0")))
    for name in ("too_many_clients", "not_admitted"):
        wait(lambda: counted(daemon, BY_KEY[f"clients_refused/{name}"]), name)  # noqa: B023


def make_others_speak_as_we_do(daemon: Daemon, wire: Wire) -> None:
    """So many that not each of them gets a line in the log."""
    with ExitStack() as stack:
        names = []
        for number in range(MAX_RECORDS + 5):
            client = stack.enter_context(daemon.connect())
            client.tag(f"t{number}")
            names.append(client.identity())
        wire.send(*(ours(name, 1, "x") for name in names))
        wait(lambda: counted(daemon, BY_KEY["identity_conflicts/identity_conflicts"]) >= len(names), "conflicts")


def make_it_stand_still(daemon: Daemon, wire: Wire) -> None:
    """What waits meanwhile is too much for the kernel, and copies come too late."""
    with daemon.connect() as client:

        def act() -> None:
            sent = daemon.metric("datagrams_sent_total")
            client.publish("again", b"and again")
            wait(lambda: daemon.metric("datagrams_sent_total") > sent, "the first copy")
            daemon.signal(signal.SIGSTOP)
            try:
                wire.send(*[b"x" * 1400] * 1000)
                time.sleep(0.6)
            finally:
                daemon.signal(signal.SIGCONT)

        until(lambda: counted(daemon, BY_KEY["copies_dropped/copies_dropped"]), act, "copies_dropped")
        assert counted(daemon, BY_KEY["socket_drops/socket_drops"])


def visit(daemon: Daemon) -> list[socket.socket]:
    """More visitors than there may be, one without HTTP and one with a name of elsewhere; two stay, and say nothing."""
    host, _, port = daemon.url.rpartition("/")[2].partition(":")
    visitors = [socket.create_connection((host, int(port)), PATIENCE) for _ in range(MAX_CONNECTIONS + 1)]
    with visitors.pop() as too_many:
        assert too_many.recv(100) == b""
    visitors[0].sendall(b"\1\2\3 no HTTP\r\n\r\n")
    assert visitors[0].recv(100) == b""
    visitors[1].sendall(b"GET / HTTP/1.1\r\nHost: elsewhere.example.org\r\n\r\n")
    assert visitors[1].recv(100).startswith(b"HTTP/1.1 421 ")
    while len(visitors) > 2:
        visitors.pop(0).close()
    return visitors


@pytest.mark.slow
@pytest.mark.root
def test_all_that_a_daemon_drops_has_one_name_and_one_count_everywhere(daemon: Daemon) -> None:
    with Wire(daemon.port) as wire, ExitStack() as visitors:
        for one in visit(daemon):
            visitors.enter_context(one)
        make_others_speak_as_we_do(daemon, wire)
        wire.send(*datagrams())
        wait(lambda: counted(daemon, BY_KEY["datagrams/bad_target"]), "the last verdict")
        with daemon.connect("x") as client:
            client.publish("x", b"comes back")
            wait(lambda: counted(daemon, BY_KEY["datagrams/looped"]), "our own broadcast")
        with daemon.raw() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * frames.MAX_PACKET)
            for frame in wrong_frames():
                sock.send(frame)
            wait(lambda: counted(daemon, BY_KEY["client_errors/unknown_listing"]), "the last frame")
        wire.send(*(ours(f"beats/p/{number}", 1, f"heartbeat/beats/p/{number}") for number in range(12)))
        with ExitStack() as stack:
            make_queues_overflow(daemon, wire, stack)
        with ExitStack() as stack:
            make_the_door_full(daemon, stack)
        make_it_stand_still(daemon, wire)
        wait(lambda: not OF_THE_DAEMON - set(in_metrics(daemon)), "everything to be counted")
        wait(lambda: daemon.metric("clients") == 0 and daemon.metric("sources") == 0, "all to have gone")
        serious = {BY_KEY[key].name for key in OF_THE_DAEMON if BY_KEY[key].serious}
        wait(lambda: all(re.search(rf"warning: .*\({name}\)", daemon.output()) for name in serious), "a line for each")
    metrics = in_metrics(daemon)
    assert set(metrics) == OF_THE_DAEMON
    assert on_page(daemon) == in_metrics(daemon)
    assert all(count > 0 for count in metrics.values())
    assert daemon.stop() == 0


@pytest.mark.slow
def test_what_the_broker_drops_has_one_name_and_one_count_everywhere(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "a", hello=1.0, max_connections=3, max_ids=2, max_subscriptions=1)
    broker.state.write_text("no state")
    reasons = {key.partition("/")[2] for key in OF_THE_BROKER}
    daemon = broker.daemon

    def reports(reason: str) -> bool:
        return broker.dropped(reason) > 0

    with broker:
        assert broker.state.with_name(f"{broker.state.name}.damaged").exists()
        broker.send(b"x", b"x" * 2000, publication(b"", STRING, b"x"))
        broker.sub(b"A", b"one", b"two")  # one too many
        wait(lambda: reports("too_many_subscriptions"), "too_many_subscriptions")
        assert broker.sub(b"A").ended()  # duplicate_id
        second = broker.sub(b"B", b"three")
        assert broker.sub(b"C").ended()  # too_many_ids: both are here
        broker.sub(None)  # no_id
        assert broker.sub(b"D").ended()  # too_many_peers
        wait(lambda: reports("no_id"), "no_id")
        second.close()
        wait(lambda: broker.peers() == 1, "B to have gone")
        broker.sub(b"C", b"four")  # in the place of B, who has gone
        wait(lambda: reports("id_evicted"), "id_evicted")
        pid = broker.pid()
        os.kill(pid, signal.SIGSTOP)
        try:
            broker.send(*[b"x" * 1500] * 8000)
        finally:
            os.kill(pid, signal.SIGCONT)
        wait(lambda: all(map(reports, reasons)), f"all of {reasons}")
        for one in broker.subs:
            one.close()
        wait(lambda: broker.peers() == 0, "all to have gone")

        def published() -> int:
            found = of_the_gateway(daemon)
            names = ("malformed", "oversize", "no_topic", "socket_drops")
            return sum(found.get(f"gateway_dropped/{name}", 0) for name in names)

        wait(lambda: published() == broker.published, "all that was published to be reported")
        metrics = of_the_gateway(daemon)
        assert set(metrics) == OF_THE_BROKER
        assert {key: count for key, count in on_page(daemon).items() if key.startswith("gateway_")} == metrics
        wait(lambda: all(re.search(rf"warning: .*\({name}\)", daemon.output()) for name in reasons), "the lines")


def of_the_gateway(daemon: Daemon) -> dict[str, int]:
    return {key: count for key, count in in_metrics(daemon).items() if key.startswith("gateway_")}


@pytest.mark.slow
def test_what_the_recorder_drops_has_one_name_and_one_count_everywhere(tmp_path: Path) -> None:
    listen = f"127.0.0.1:{free_port()}"
    settings = {
        "bus": {"queue": {"messages": 10}},
        "recorder": {"journal": str(tmp_path / "journal"), "metrics": {"listen": listen}},
    }
    (key,) = OF_THE_RECORDER
    with Daemon(tmp_path / "a", settings) as daemon, Wire(daemon.port) as wire, Recorder(daemon) as recorder:
        recorder.signal(signal.SIGSTOP)
        seqs = iter(range(1, 10**6))

        def act() -> None:
            before = daemon.metric("datagrams_received_total")
            wire.send(*(datagram(OTHER, next(seqs), "x", b"y" * 1300) for _ in range(100)))
            wait(lambda: daemon.metric("datagrams_received_total") >= before + 100, "the daemon to read")

        until(lambda: counted(daemon, BY_KEY["deliveries_dropped/queue_messages"]), act, "a gap")
        recorder.signal(signal.SIGCONT)
        wait(lambda: key in on_page(daemon), "the recorder's report")
        lost = counted(daemon, BY_KEY["deliveries_dropped/queue_messages"])
        wait(lambda: on_page(daemon)[key] == lost, "all of it")
        own = Daemon(tmp_path / "b", {"metrics": {"listen": listen}}, start=False)
        assert own.metric("recorder_tap_gap_records_total") == lost
        wait(lambda: "(recorder_tap_gap_records)" in recorder.output(), "the line")
        assert key not in in_metrics(daemon)  # two listeners would count it twice
