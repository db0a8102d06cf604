"""Access rules and limits of users, with a real daemon and clients of several users."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from tests.e2e.harness import Daemon, Wire, acting_as, datagram, wait
from tests.support import Closing, need_root

ANN: Final = 61_001
BOB: Final = 61_002
STAFF: Final = 61_100
SRC: Final = "host-c/plain/7"


class User(Closing):
    """A bare client of the bus that connects as a user, in groups."""

    def __init__(self, daemon: Daemon, *who: int) -> None:
        with acting_as(*who):
            self.sock = daemon.raw()

    def say(self, *packets: bytes) -> None:
        for packet in packets:
            self.sock.send(packet)

    def receive(self) -> list[bytes]:
        """What there is up to the echo of a sync."""
        self.sock.send(b"CMSG !/bccn/sync\0now")
        heard = []
        while (packet := self.sock.recv(1 << 20)) != b"CMSG !/bccn/sync\0now":
            assert packet, "the connection was closed"
            heard.append(packet)
        return heard

    def close(self) -> None:
        self.sock.close()


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    """One for all tests, with a socket that every user can open; `configured` gives it its rules."""
    need_root("clients of several users")
    # Not below pytest's own folders, which are for their owner alone.
    with tempfile.TemporaryDirectory() as above, Daemon(Path(above) / "d", {"bus": {"mode": "0666"}}) as daemon:
        for folder in (daemon.folder, daemon.folder.parent):
            folder.chmod(0o755)
        yield daemon


@pytest.fixture
def connect(daemon: Daemon) -> Iterator[Callable[..., User]]:
    """Clients of this test, which are gone from the daemon when it ends."""
    with ExitStack() as stack:
        yield lambda *who: stack.enter_context(User(daemon, *who))
    wait(lambda: daemon.metric("clients") == 0, "the clients to be gone")


def configured(daemon: Daemon, access: Sequence[dict[str, Any]] = (), **bus: Any) -> None:
    """Reload with these rules and these settings of the bus instead of those before."""
    daemon.settings["bus"] = {"path": str(daemon.bus), "mode": "0666"}
    daemon.configure({"access": list(access), "bus": bus})
    daemon.reload()


def refusals(packets: list[bytes]) -> list[bytes]:
    return [packet.partition(b"\0")[2] for packet in packets if packet.startswith(b"CMSG !/bccn/error\0")]


Connect = Callable[..., User]


def test_without_rules_every_user_publishes_and_subscribes_and_only_root_taps(daemon: Daemon, connect: Connect) -> None:
    configured(daemon)
    ann, bob, root = connect(ANN), connect(BOB), connect(0)
    ann.say(b"SUB a/", b"SUB !/tap/", b"CMSG !/bccn/trace\0x")
    root.say(b"SUB !/tap/accepted")
    assert refusals(ann.receive()) == [b"not_permitted !/tap/", b"not_permitted !/bccn/trace"]
    assert root.receive() == []
    bob.say(b"MSG a/x\0hello")
    assert bob.receive() == []
    assert ann.receive() == [b"MSG a/x\0hello"]
    with Wire(daemon.port) as wire:
        raw = datagram(SRC, 1, "a/y", b"far")
        wire.send(raw)
        assert ann.sock.recv(1000) == b"MSG a/y\0far"
        tapped = root.sock.recv(1000)
    assert tapped.startswith(b"MSG !/tap/accepted\x00127.255.255.255#%d:1:" % daemon.port)
    assert tapped.endswith(b":%d|%b" % (daemon.port, raw))


def test_rules_by_user_hold_and_refusals_are_counted_and_logged_once(daemon: Daemon, connect: Connect) -> None:
    rules: list[dict[str, Any]] = [
        {"user": ANN, "publish": ["ann/"], "subscribe": ["ann/", "news"]},
        {"publish": [""], "subscribe": [""]},
    ]
    configured(daemon, rules)
    ann, bob = connect(ANN), connect(BOB)
    before = daemon.metric("client_errors_total", reason="not_permitted")
    ann.say(b"SUB ann/in", b"SUB news", b"SUB bob/", b"SUB ", b"SUB ann", b"SUB */x")
    ann.say(b"MSG ann/out\x001", b"MSG bob/x\x002", b"MSG !\x003", b"MSG !/own\x004")
    denied = [b"bob/", b"", b"ann", b"*/x", b"bob/x", b"!", b"!/own"]
    assert refusals(ann.receive()) == [b"not_permitted " + key for key in denied]
    bob.say(b"SUB ", b"MSG news\x001", b"MSG ann/in\x002", b"MSG ann\x003")
    assert refusals(bob.receive()) == []
    assert ann.receive() == [b"MSG news\x001", b"MSG ann/in\x002"]
    assert daemon.metric("client_errors_total", reason="not_permitted") == before + len(denied)
    assert daemon.output().count(f"uid {ANN}) has asked for") == 1


def test_a_reload_takes_from_connected_clients_what_they_may_no_longer_have(daemon: Daemon, connect: Connect) -> None:
    configured(daemon, [{"user": ANN, "tap": True}])
    ann, bob = connect(ANN), connect(BOB)
    ann.say(b"SUB a/", b"SUB b/", b"SUB !/tap/looped", b"CMSG !/bccn/tag\0left")
    assert ann.receive() == []
    limited = {"user": ANN, "subscribe": ["b/"], "publish": [], "tap": False, "tag": False}
    configured(daemon, [limited, {"subscribe": [""], "publish": [""]}])
    taken = refusals(ann.receive())
    assert sorted(taken) == [b"not_permitted !/bccn/tag", b"not_permitted !/tap/looped", b"not_permitted a/"]
    bob.say(b"MSG a/x\x003", b"MSG b/x\x004")
    bob.receive()
    ann.say(b"CMSG !/bccn/whoami", b"MSG b/x\0no")
    heard = ann.receive()
    assert heard[0] == b"MSG b/x\x004"
    assert heard[1].startswith(b"CMSG !/bccn/whoami\0relay01/")
    assert not heard[1].endswith(b"/left")
    assert refusals(heard) == [b"not_permitted b/x"]


def test_rules_by_group_hold_for_supplementary_groups_and_rules_by_program_for_its_name(
    daemon: Daemon, connect: Connect
) -> None:
    configured(daemon, [{"group": STAFF, "publish": ["staff/"]}, {"program": "gauge", "publish": ["gauge/"]}])
    comm = Path("/proc/self/comm")
    before = comm.read_text()
    comm.write_text("gauge")
    try:
        gauge = connect(BOB)
        gauge.say(b"CMSG !/cred/whoami")
        gauge.receive()
    finally:
        comm.write_text(before)
    for client, allowed in (
        (connect(ANN, STAFF), (b"staff/x",)),
        (connect(ANN, ANN, STAFF), (b"staff/x",)),
        (gauge, (b"gauge/x",)),
        (connect(ANN), ()),
        (connect(0), (b"staff/x", b"gauge/x")),  # no rule names root, which keeps what it has without rules
    ):
        client.say(b"MSG staff/x\0", b"MSG gauge/x\0")
        denied = {b"not_permitted " + key for key in (b"staff/x", b"gauge/x") if key not in allowed}
        assert set(refusals(client.receive())) == denied
