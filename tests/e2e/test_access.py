"""Access rules and limits of users, with a real daemon and clients of several users."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from tests.e2e.harness import Daemon, acting_as, wait
from tests.support import Closing, need_root

ANN: Final = 61_001
BOB: Final = 61_002
STAFF: Final = 61_100


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


def test_rules_by_user_group_and_program_hold_and_refusals_are_counted_and_logged_once(
    daemon: Daemon, connect: Connect
) -> None:
    rules: list[dict[str, Any]] = [
        {"user": ANN, "subscribe": ["ann/", "news"]},
        {"subscribe": [""]},
        {"group": STAFF, "publish": ["staff/"]},
        {"program": "gauge", "publish": ["gauge/"]},
    ]
    configured(daemon, rules)
    before = daemon.metric("client_errors_total", reason="not_permitted")
    comm = Path("/proc/self/comm")
    program = comm.read_text()
    comm.write_text("gauge")
    try:
        gauge = connect(BOB)
        gauge.receive()
    finally:
        comm.write_text(program)
    ann = connect(ANN)
    # No rule names root, which keeps what it has without rules.
    for client, allowed in (
        (connect(ANN, STAFF), (b"staff/x",)),
        (connect(ANN, ANN, STAFF), (b"staff/x",)),
        (gauge, (b"gauge/x",)),
        (ann, ()),
        (connect(0), (b"staff/x", b"gauge/x")),
    ):
        client.say(b"MSG staff/x\0", b"MSG gauge/x\0")
        denied = {b"not_permitted " + key for key in (b"staff/x", b"gauge/x") if key not in allowed}
        assert set(refusals(client.receive())) == denied
    ann.say(b"SUB ann/in", b"SUB news", b"SUB bob/", b"SUB ", b"SUB !/tap/")
    assert refusals(ann.receive()) == [b"not_permitted bob/", b"not_permitted ", b"not_permitted !/tap/"]
    assert daemon.metric("client_errors_total", reason="not_permitted") == before + 8
    assert daemon.output().count(f"uid {ANN}) requested") == 1


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
