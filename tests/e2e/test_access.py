"""Who may do what: rules, users, secret keys and identities, with a real daemon and clients of several users."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.e2e.harness import Daemon, Wire, acting_as, datagram, wait
from tests.e2e.starting import refused
from tests.support import need_root

ANN: Final = 61_001
BOB: Final = 61_002
STAFF: Final = 61_100
SRC: Final = "host-c/plain/7"


class User:
    """A bare client of the bus that connects as somebody."""

    def __init__(self, daemon: Daemon, *who: int, address: str | None = None) -> None:
        with acting_as(*who):
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self.sock.connect(address or str(daemon.bus))
        self.sock.settimeout(20)

    def say(self, *packets: bytes) -> None:
        for packet in packets:
            self.sock.send(packet)

    def hear(self) -> list[bytes]:
        """What there is up to the echo of a sync."""
        self.sock.send(b"CMSG !/bccn/sync\0now")
        heard = []
        while (packet := self.sock.recv(1 << 20)) != b"CMSG !/bccn/sync\0now":
            assert packet, "the connection was closed"
            heard.append(packet)
        return heard

    def __enter__(self) -> User:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()


@contextmanager
def daemon_for_all(**settings: Any) -> Iterator[Daemon]:
    """A daemon whose socket every user can open."""
    need_root("clients of several users")
    settings["bus"] = {"mode": "0666", **settings.get("bus", {})}
    # Not below pytest's own folders, which are for their owner alone.
    with tempfile.TemporaryDirectory() as above, Daemon(Path(above) / "d", settings) as daemon:
        for folder in (daemon.folder, daemon.folder.parent):
            folder.chmod(0o755)
        yield daemon


def refusals(packets: list[bytes]) -> list[bytes]:
    return [packet.partition(b"\0")[2] for packet in packets if packet.startswith(b"CMSG !/bccn/error\0")]


def test_without_rules_everybody_publishes_and_subscribes_and_only_root_taps() -> None:
    with (
        daemon_for_all() as daemon,
        User(daemon, ANN) as ann,
        User(daemon, BOB) as bob,
        User(daemon, 0) as root,
    ):
        ann.say(b"SUB a/", b"SUB !/tap/", b"CMSG !/bccn/trace\0x")
        root.say(b"SUB !/tap/accepted")
        assert refusals(ann.hear()) == [b"not_permitted !/tap/", b"not_permitted !/bccn/trace"]
        assert root.hear() == []
        bob.say(b"MSG a/x\0hello")
        assert bob.hear() == []
        assert ann.hear() == [b"MSG a/x\0hello"]
        with Wire(daemon.port) as wire:
            raw = datagram(SRC, 1, "a/y", b"far")
            wire.send(raw)
            assert ann.sock.recv(1000) == b"MSG a/y\0far"
            tapped = root.sock.recv(1000)
        assert tapped.startswith(b"MSG !/tap/accepted\x00127.255.255.255#%d:1:" % daemon.port)
        assert tapped.endswith(b":%d|%b" % (daemon.port, raw))


def test_rules_by_user_hold_and_are_told_counted_and_logged_once() -> None:
    rules = [{"user": ANN, "publish": ["ann/"], "subscribe": ["ann/", "news"]}, {"publish": [""], "subscribe": [""]}]
    with daemon_for_all(access=rules) as daemon, User(daemon, ANN) as ann, User(daemon, BOB) as bob:
        ann.say(b"SUB ann/in", b"SUB news", b"SUB bob/", b"SUB ", b"SUB ann", b"SUB */x")
        ann.say(b"MSG ann/out\x001", b"MSG bob/x\x002", b"MSG !\x003", b"MSG !/own\x004")
        denied = [b"bob/", b"", b"ann", b"*/x", b"bob/x", b"!", b"!/own"]
        assert refusals(ann.hear()) == [b"not_permitted " + key for key in denied]
        bob.say(b"SUB ", b"MSG news\x001", b"MSG ann/in\x002", b"MSG ann\x003")
        assert refusals(bob.hear()) == []
        assert ann.hear() == [b"MSG news\x001", b"MSG ann/in\x002"]
        assert daemon.metric("client_errors_total", reason="not_permitted") == len(denied)
        assert daemon.said().count(f"uid {ANN}) has asked for") == 1


def test_a_reload_takes_from_living_clients_what_they_may_no_longer_have() -> None:
    with daemon_for_all() as daemon, User(daemon, ANN) as ann, User(daemon, BOB) as bob:
        daemon.configure({"access": [{"user": ANN, "tap": True}]})
        daemon.reload()
        ann.say(b"SUB a/", b"SUB b/", b"SUB !/tap/looped", b"CMSG !/bccn/tag\0left")
        assert ann.hear() == []
        bob.say(b"MSG a/x\x001", b"MSG b/x\x002")
        bob.hear()
        heard = ann.hear()
        assert [packet for packet in heard if not packet.startswith(b"MSG !/tap/")] == [
            b"MSG a/x\x001",
            b"MSG b/x\x002",
        ]
        limited = {"user": ANN, "subscribe": ["b/"], "publish": [], "tap": False, "tag": False}
        daemon.configure({"access": [limited, {"subscribe": [""], "publish": [""]}]})
        daemon.reload()
        taken = refusals(ann.hear())
        assert sorted(taken) == [b"not_permitted !/bccn/tag", b"not_permitted !/tap/looped", b"not_permitted a/"]
        bob.say(b"MSG a/x\x003", b"MSG b/x\x004")
        bob.hear()
        ann.say(b"CMSG !/bccn/whoami", b"MSG b/x\0no")
        heard = ann.hear()
        assert heard[0] == b"MSG b/x\x004"
        assert heard[1].startswith(b"CMSG !/bccn/whoami\0relay01/")
        assert not heard[1].endswith(b"/left")
        assert refusals(heard) == [b"not_permitted b/x"]


def test_rules_by_group_take_supplementary_groups_and_rules_by_program_its_name() -> None:
    rules = [{"group": STAFF, "publish": ["staff/"]}, {"program": "gauge", "publish": ["gauge/"]}]
    with daemon_for_all(access=rules) as daemon:
        comm = Path("/proc/self/comm")
        before = comm.read_text()
        comm.write_text("gauge")
        try:
            gauge = User(daemon, BOB)
            gauge.say(b"CMSG !/cred/whoami")
            gauge.hear()
        finally:
            comm.write_text(before)
        for client, allowed in (
            (User(daemon, ANN, STAFF), b"staff/x"),
            (User(daemon, ANN, ANN, STAFF), b"staff/x"),
            (gauge, b"gauge/x"),
            (User(daemon, ANN), b"nothing"),
        ):
            with client:
                client.say(b"MSG staff/x\0", b"MSG gauge/x\0")
                denied = {b"not_permitted staff/x", b"not_permitted gauge/x"} - {b"not_permitted " + allowed}
                assert set(refusals(client.hear())) == denied
        with User(daemon, 0) as root:  # whom no rule names, and who keeps what everybody has without rules
            root.say(b"MSG staff/x\0", b"MSG gauge/x\0")
            assert root.hear() == []


@pytest.mark.parametrize(
    ("rule", "said"), [({"user": "no-such-user"}, "no user no-such-user"), ({"group": "no-such"}, "no group no-such")]
)
def test_a_rule_that_names_nobody_stops_the_start(tmp_path: Path, rule: dict[str, str], said: str) -> None:
    daemon = Daemon(tmp_path / "d", {"access": [{**rule, "tap": True}]}, start=False)
    assert said in refused(daemon)


def test_a_secret_key_reaches_whom_it_names_and_no_other_user() -> None:
    pid = os.getpid()
    with (
        daemon_for_all() as daemon,
        User(daemon, ANN) as ann,
        User(daemon, BOB) as bob,
        User(daemon, 0) as root,
    ):
        greedy = (b"", b"!/", b"!/>", b"!*", b"!/*/", b"!/cred/", b"!/cred/>", b"!/cred/*/*/*/", b"!/cred/*/*/*/x")
        theirs = (b"!/cred/%d/%d/%d/x" % (ANN, ANN, pid), b"!/cred//%d//x" % ANN, b"!/cred/%d///" % ANN)
        for other in (bob, root):
            other.say(*(b"SUB " + pattern for pattern in (*greedy, *theirs)), b"SUB !/cred////x", b"SUB !/cred////")
            told = refusals(other.hear())
            assert [b"not_permitted " + pattern for pattern in theirs] == told[-3:]
        ann.say(b"CMSG !/cred/whoami", b"SUB !/cred////x")
        assert ann.hear() == [b"CMSG !/cred/whoami\0!/cred/%d/%d/%d" % (ANN, ANN, pid)]
        for key in (b"%d/%d/%d/x" % (ANN, ANN, pid), b"/%d//x" % ANN, b"%d///x" % ANN):
            bob.say(b"MSG !/cred/%b\0secret" % key)
            assert bob.hear() == root.hear() == []
            assert ann.hear() == [b"MSG !/cred/%b\0secret" % key]


def test_everybody_is_who_the_kernel_says_and_a_tag_stands_behind_that() -> None:
    with daemon_for_all() as daemon, User(daemon, ANN) as ann, User(daemon, BOB) as bob:
        program = Path("/proc/self/comm").read_bytes().strip()
        base = b"relay01/%b/%d" % (program, os.getpid())
        for tag, name in ((b"", base), (b"west", base + b"/west"), (b"../x", base + b"/west"), (b"", base)):
            ann.say(b"CMSG !/bccn/tag\0" + tag, b"CMSG !/bccn/whoami")
            heard = ann.hear()
            assert heard[-1] == b"CMSG !/bccn/whoami\0" + name
            assert refusals(heard) == ([b"bad_tag ../x"] if tag == b"../x" else [])
        ann.say(b"CMSG !/bccn/tag\0west")
        ann.hear()
        bob.say(b"MSG !%b/west\0for you" % base)
        assert bob.hear() == []
        assert ann.hear() == [b"MSG !%b/west\0for you" % base]
        with Wire(daemon.port) as wire:
            ann.say(b"MSG a/b\0signed west")
            assert wire.hear(b"signed west").partition(b"]")[2].startswith(base + b"/west:")


def test_one_user_can_take_up_no_more_than_his_share() -> None:
    caps = {"clients": 3, "subscriptions": 5, "queue_bytes": 4096, "rate": 0}
    with daemon_for_all(bus={"user": caps}) as daemon, User(daemon, BOB) as bob:
        clients = [User(daemon, ANN) for _ in range(3)]
        assert all(client.hear() == [] for client in clients)
        with User(daemon, ANN) as fourth:
            assert fourth.sock.recv(1000) == b"CMSG !/bccn/error\0too_many_clients_of_user "
            assert fourth.sock.recv(1000) == b""
        clients[0].say(*(b"SUB a/%d" % number for number in range(4)))
        assert clients[0].hear() == []
        clients[1].say(b"SUB b/", b"SUB c/")
        assert refusals(clients[1].hear()) == [b"too_many_subscriptions c/"]
        for _ in range(2000):
            bob.say(b"MSG b/x\0" + b"y" * 200)
        assert bob.hear() == []
        assert 0 < daemon.metric("queue_bytes") <= 4096
        assert daemon.metric("deliveries_dropped_total", reason="user_queue_bytes") > 0
        assert daemon.metric("clients_refused_total", reason="too_many_clients_of_user") == 1
        for client in clients:
            client.sock.close()
        wait(lambda: daemon.metric("clients") == 1, "the clients to be gone")
        with User(daemon, ANN) as again:
            again.say(*(b"SUB a/%d" % number for number in range(5)))
            assert again.hear() == []


def test_who_publishes_faster_than_he_may_is_slowed_and_loses_nothing() -> None:
    with (
        daemon_for_all(bus={"user": {"rate": 200}}) as daemon,
        User(daemon, BOB) as bob,
        User(daemon, ANN) as one,
        User(daemon, ANN) as other,
    ):
        bob.say(b"SUB a")
        assert bob.hear() == []
        for number in range(150):  # together they have a burst of 200, and then wait
            one.say(b"MSG a\x001-%d" % number)
            other.say(b"MSG a\x002-%d" % number)
        got = [bob.sock.recv(100) for _ in range(300)]
        for name in (b"1", b"2"):
            assert [one for one in got if one[6:7] == name] == [b"MSG a\0%b-%d" % (name, n) for n in range(150)]
        assert daemon.metric("publishers_held_total", reason="rate") > 0


@pytest.mark.parametrize("mode", [b"soft", b"hard"])
def test_a_client_that_asks_for_it_slows_its_publishers_and_loses_nothing(mode: bytes) -> None:
    bus = {"queue": {"messages": 50}, "patience": "60s"}
    with daemon_for_all(bus=bus) as daemon, User(daemon, ANN) as reader, User(daemon, ANN) as publisher:
        reader.say(b"CMSG blocking/%b/block" % mode, b"SUB a")
        assert reader.hear() == []
        with User(daemon, BOB) as other:
            other.say(b"SUB a")
            assert other.hear() == []
            thread = threading.Thread(target=lambda: publisher.say(*(b"MSG a\0%d" % n for n in range(3000))))
            thread.start()
            wait(lambda: daemon.metric("publishers_held_total", reason="slow_reader") > 0, "the publisher to wait")
            # The segment waits for nobody.
            with Wire(daemon.port) as wire:
                wire.send(datagram(SRC, 1, "b", b"far"))
                wait(lambda: daemon.verdicts().get("accepted") == 1, "the segment to be served")
            for client in (reader, other):
                client.sock.settimeout(20)
            assert [reader.sock.recv(100) for _ in range(3000)] == [b"MSG a\0%d" % n for n in range(3000)]
            thread.join()
            assert daemon.metric("deliveries_dropped_total", reason="client_gone") == 0


def test_nobody_waits_longer_than_the_patience_for_a_client_that_reads_nothing() -> None:
    bus = {"queue": {"messages": 50}, "patience": "200ms"}
    with daemon_for_all(bus=bus) as daemon, User(daemon, ANN) as stuck, User(daemon, ANN) as publisher:
        stuck.say(b"CMSG blocking/soft/block", b"SUB a")
        assert stuck.hear() == []
        publisher.say(*(b"MSG a\0%d" % number for number in range(2000)))
        assert publisher.hear() == []
        assert "no longer wait for it" in daemon.said()
        lost = int(daemon.metric("deliveries_dropped_total"))
        got = [packet for packet in stuck.hear() if packet.startswith(b"MSG ")]
        assert lost > 0
        assert len(got) + lost == 2000


def test_a_client_slows_nobody_of_another_user() -> None:
    bus = {"queue": {"messages": 50}, "patience": "60s"}
    with daemon_for_all(bus=bus) as daemon, User(daemon, ANN) as stuck, User(daemon, BOB) as publisher:
        stuck.say(b"CMSG blocking/soft/block", b"CMSG blocking/hard/block", b"SUB a")
        assert stuck.hear() == []
        publisher.say(*(b"MSG a\0%d" % number for number in range(2000)))
        assert publisher.hear() == []
        assert daemon.metric("publishers_held_total") == 0


def test_a_client_that_asks_to_be_ended_when_it_is_too_slow_is() -> None:
    with daemon_for_all() as daemon, User(daemon, ANN) as slow, User(daemon, BOB) as publisher:
        slow.say(b"CMSG blocking/soft/error", b"SUB a")
        assert slow.hear() == []
        publisher.say(*(b"MSG a\0%d" % number for number in range(2000)))
        assert publisher.hear() == []
        assert daemon.metric("clients_ended_total", reason="slow") == 1
        assert daemon.metric("clients") == 1
