"""Peer credentials: processes that run, have ended, or whose pid was reused."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from bccnd.config.schema import BusSettings
from bccnd.core.wire import frames
from bccnd.net.listen import listen_abstract
from bccnd.net.peer import MAX_PROGRAM, UNKNOWN, PeerIdentifier, credentials
from tests.limits import descriptors, descriptors_left
from tests.rules import bus_limits
from tests.support import ANN, BOB, Hub, Peer, Process, Who, cannot_here, messages, need_root, slow, turn_until


@pytest.fixture
def identifier() -> Iterator[PeerIdentifier]:
    one = PeerIdentifier()
    yield one
    one.close()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with listen_abstract() as one:
        yield one


@contextlib.contextmanager
def connected(listener: socket.socket, user: Who) -> Iterator[tuple[Process, socket.socket]]:
    """A process that has connected, and our end."""
    process = Process(user, listener.getsockname())
    served, _ = listener.accept()
    try:
        with served:
            yield process, served
    finally:
        process.end()
        os.close(process.descriptor)


def started(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_bytes()
    return int(stat.rpartition(b")")[2].split()[19])


@pytest.mark.parametrize(
    ("user", "program"),
    [
        (ANN, b"ann"),
        (Who(4003, 5003, (), b"a b/c*d!e?f:g|h"), b"a_b_c_d_e_f_g_h"),
        (Who(4003, 5003, (), b") R 1 2 (x"), None),
        (Who(4003, 5003, (), b"x" * 15), b"x" * 15),
        (Who(4003, 5003, (), b"\xff\xfe\x01"), b"___"),
        (Who(4003, 5003, (6001, 6002)), b"somebody"),
        (Who(4003, 5003, tuple(range(7000, 7000 + 65))), b"somebody"),
        (Who(4003, 5003, tuple(range(7000, 7000 + 5000))), b"somebody"),
        (Who(2**32 - 2, 2**32 - 2), b"somebody"),
    ],
)
def test_a_process_is_known_by_user_groups_and_a_harmless_name(
    identifier: PeerIdentifier, listener: socket.socket, user: Who, program: bytes | None
) -> None:
    with connected(listener, user) as (process, served):
        peer = identifier.identify(served)
        assert (peer.pid, peer.uid, peer.gid) == (process.pid, user.uid, user.gid)
        assert peer.groups == {*user.groups, user.gid}
        assert peer.started == started(process.pid)
        if program is not None:
            assert peer.program == program
        assert str(peer) == f"{peer.program.decode()} (pid {process.pid}, uid {user.uid})"
        assert len(peer.program) <= MAX_PROGRAM
        assert not set(peer.program) & set(b"/*?!:|\0 \n")


def test_a_process_that_has_ended_keeps_its_user_not_its_name(
    identifier: PeerIdentifier, listener: socket.socket
) -> None:
    with connected(listener, ANN) as (process, served):
        for ended in (False, True):
            if ended:
                process.end()
            before = descriptors()
            for _ in range(20):
                peer = identifier.identify(served)
            assert descriptors() == before
        assert peer == (process.pid, ANN.uid, ANN.gid, frozenset({ANN.gid}), UNKNOWN, 0)
        assert credentials(served) == (process.pid, ANN.uid, ANN.gid)


def test_a_reused_pid_is_not_attributed_to_the_new_process(identifier: PeerIdentifier, listener: socket.socket) -> None:
    need_root("only root can choose the next pid")
    with connected(listener, ANN) as (process, served):
        process.end()
        for _ in range(200):
            try:
                Path("/proc/sys/kernel/ns_last_pid").write_text(str(process.pid - 1))
            except OSError as error:
                cannot_here(f"the next pid cannot be chosen: {error}")
            heir = Process(Who(BOB.uid, BOB.gid, (), b"heir"), listener.getsockname())
            os.close(heir.descriptor)
            try:
                if heir.pid == process.pid:
                    peer = identifier.identify(served)
                    assert (peer.uid, peer.program, peer.started) == (ANN.uid, UNKNOWN, 0)
                    return
            finally:
                heir.end()
    cannot_here("another process always takes the next pid first")


def test_without_a_descriptor_a_peer_is_known_all_the_same(identifier: PeerIdentifier, listener: socket.socket) -> None:
    with connected(listener, ANN) as (process, served):
        expected = identifier.identify(served)
        with descriptors_left(0):
            with pytest.raises(OSError, match="Too many open files"):
                os.dup(0)
            for _ in range(3):
                assert identifier.identify(served) == expected
        assert expected.started == started(process.pid)


def test_the_last_descriptor_goes_to_a_client_with_a_name(hub: Hub) -> None:
    waiting = [hub.knock() for _ in range(3)]
    since = started(os.getpid())
    with descriptors_left(1):
        hub.turn(5)
        assert len(hub.bus.clients) == 1
        (client,) = hub.bus.clients.values()
        assert client.peer.started == since
        waiting[0].publish(b"a", b"x")
        assert waiting[0].all() == []


def pretend_older(peer: Peer) -> None:
    """As if the client had been opened by a process that had this pid before."""
    client = peer.client
    client.peer = client.peer._replace(started=client.peer.started - 1)


def test_earlier_clients_of_a_reused_pid_are_ended(hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    old, tagged, unknown, other = (hub.connect(b"a") for _ in range(4))
    tagged.send(frames.request(frames.TAG, b"tag"))
    tagged.all()
    pretend_older(old)
    pretend_older(tagged)
    unknown.client.peer = unknown.client.peer._replace(started=0)  # so that it may be of the same process
    hub.bus.registry.by_pid.remove(other.client)
    other.client.peer = other.client.peer._replace(pid=os.getppid())
    hub.bus.registry.by_pid.add(other.client)
    new = hub.connect(b"a")
    assert (old.ended(), tagged.ended()) == (True, True)
    assert set(hub.bus.clients) == {unknown.client.fd, other.client.fd, new.client.fd}
    assert new.client.identity == old.client.base
    assert hub.bus.counters.ended.all() == {"slow": 0, "pid_reused": 2, "bug": 0}
    assert [vars(record)["event"] for record in caplog.records] == ["client_ended"] * 2
    new.publish(b"a", b"x")
    assert messages(new.all(), b"a") == messages(other.all(), b"a") == [b"x"]
    account = hub.bus.quota.account(os.geteuid())
    assert account is not None
    assert (len(hub.routes), account.clients) == (3, 3)


def test_blockers_and_blocked_clients_of_a_reused_pid_are_ended(hub: Hub) -> None:
    blocker, publisher = slow(hub, b"a"), hub.connect()
    blocker.send(b"CMSG blocking/soft/block")
    hub.settle()
    while not blocker.client.queue:
        hub.deliver(((blocker.client.fd,), b"MSG a\0" + b"x" * 1000))
    publisher.publish(b"a", b"x")
    hub.settle()
    assert publisher.client.blocked_packet is not None
    for peer in (blocker, publisher):
        pretend_older(peer)
    new = hub.connect(b"a")
    hub.settle()
    assert (hub.bus.counters.ended["pid_reused"], hub.bus.queue_bytes) == (2, 0)
    new.publish(b"a", b"y")
    assert messages(new.all(), b"a")[-1] == b"y"


@pytest.mark.parametrize("limits", [bus_limits(max_clients=1), bus_limits(user={"clients": 1})])
def test_a_client_of_a_reused_pid_makes_way_without_quiet(tmp_path: Path, limits: BusSettings) -> None:
    quiet: list[int] = []
    with Hub(tmp_path, limits=limits, on_quiet=lambda: quiet.append(1)) as hub:
        old = hub.connect()
        pretend_older(old)
        new = hub.knock()
        hub.turn()
        assert (old.ended(), len(hub.bus.clients)) == (True, 1)
        assert quiet == [], "the daemon would have ended when its next client came"
        new.close()
        turn_until(hub.loop, lambda: quiet, "the last one to leave")
    assert quiet == [1]


def test_clients_of_another_pid_namespace_have_own_names(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel gives their pid as 0."""
    monkeypatch.setattr("bccnd.net.peer.credentials", lambda _sock: (0, os.geteuid(), os.getegid()))
    clients = [hub.connect(b"a").client for _ in range(3)]
    assert [client.identity for client in clients] == [b"relay01/unknown/0/%d" % number for number in (1, 2, 3)]
    assert {(client.peer.pid, client.peer.started) for client in clients} == {(0, 0)}
    # One wants the name of another.
    late = hub.connect()
    late.send(frames.request(frames.TAG, b"1"))
    late.all()
    clients = list(hub.bus.clients.values())
    assert len({client.identity for client in clients}) == len(clients) == 4
