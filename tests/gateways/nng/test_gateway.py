"""Links as they run in service: the gateway in a process of its own, the bus played by the test, real peers."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from bccnd.gateways.nng.endpoints import MAX_GREETING
from tests.gateways import certificates as made_as_documented
from tests.gateways.peers import PATIENCE, RawPeer, RunningGateway, place, url
from tests.support import cannot_here, wait

ONE = b"BCCN1[12]h/p/1:7:a/b|x"
#: bytes that some program or other would stumble over
AWKWARD = b"BCCN1[12]h/p/1:8:a/b|" + bytes(range(256))


@contextmanager
def nngcat(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    if shutil.which("nngcat") is None:
        cannot_here("there is no nngcat: apt-get install nng-utils")
    process = subprocess.Popen(["nngcat", "--bus", *words], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def read(process: subprocess.Popen[bytes], size: int) -> bytes:
    """So many bytes of what a program says."""
    assert process.stdout is not None
    got = b""
    while len(got) < size:
        data = os.read(process.stdout.fileno(), size - len(got))
        assert data
        got += data
    return got


@pytest.mark.parametrize(("listens", "scheme"), [(True, "tcp"), (False, "tcp"), (True, "ipc"), (False, "abstract")])
def test_a_stock_program_gets_and_gives_datagrams_as_they_are(tmp_path: Path, listens: bool, scheme: str) -> None:
    where = {"ipc": f"ipc://{tmp_path}/link", "abstract": f"abstract://{tmp_path}"}.get(scheme, url())
    started = time.time_ns()
    file = tmp_path / "datagram"
    file.write_bytes(AWKWARD)
    words = ("--dial" if listens else "--listen", where, "--raw", "--file", str(file), "--delay", "1")
    with RunningGateway(tmp_path, {"listen" if listens else "dial": [where]}) as gateway, nngcat(*words) as cat:
        gateway.peers(1)
        gateway.bus.give((0, ONE), (0, AWKWARD))
        assert read(cat, len(ONE + AWKWARD)) == ONE + AWKWARD
        wait(gateway.bus.brought, "the datagram", PATIENCE)
        ((way, when, peer, datagram),) = gateway.bus.arrived()
        assert datagram == AWKWARD
        assert way >= 1
        assert started <= when <= time.time_ns()
        assert peer == gateway.bus.report()["peers"][0]["peer"]
        assert gateway.bus.report()["peers"][0]["name"] == where


def test_others_cannot_connect_to_a_unix_link_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with RunningGateway(tmp_path, {"listen": [f"ipc://{tmp_path}/link"]}):
            wait(lambda: (tmp_path / "link").exists(), "the listener", PATIENCE)
            assert not (tmp_path / "link").stat().st_mode & 0o007
    finally:
        os.umask(before)


def test_what_came_by_a_link_does_not_go_back_there(tmp_path: Path) -> None:
    where = url()
    with RunningGateway(tmp_path, {"listen": [where]}) as gateway, RawPeer(where) as ann, RawPeer(where) as bob:
        gateway.peers(2)
        assert gateway.bus.subscribed == 1
        ann.send(ONE)
        bob.send(AWKWARD)
        wait(lambda: len(gateway.bus.brought()) == 2, "both", PATIENCE)
        ways = {peer: way for way, _, peer, _ in gateway.bus.arrived()}
        assert set(ways) == {ann.name, bob.name}
        assert len(set(ways.values())) == 2
        gateway.bus.give((ways[ann.name], b"of ann"), (ways[bob.name], b"of bob"), (0, b"ours"))
        assert [ann.receive(), ann.receive()] == [b"of bob", b"ours"]
        assert [bob.receive(), bob.receive()] == [b"of ann", b"ours"]
        # The number of a peer that has gone leaves out no other.
        ann.close()
        gateway.peers(1)
        gateway.bus.give((ways[ann.name], b"of the late ann"), (0, b"ours again"))
        assert [bob.receive(), bob.receive()] == [b"of the late ann", b"ours again"]
        gateway.bus.give((ways[bob.name], b"of bob"), (0, b"the last"))
        assert bob.receive() == b"the last"
        # Without a peer the daemon is asked for nothing.
        bob.close()
        gateway.peers(0)
        assert gateway.bus.subscribed == 0


def test_filters_and_names_in_both_directions(tmp_path: Path) -> None:
    where = url()
    settings = {"listen": [where], "send": ["out/"], "receive": ["in/", "!"]}
    with RunningGateway(tmp_path, settings) as gateway, RawPeer(where) as peer:
        gateway.peers(1)
        chans = (b"out/x", b"in/x", b"!", b"!h/p/1", b"heartbeat/h/p/1")
        datagrams = [b"BCCN1[9]h/p/1:7:%b|x" % chan for chan in chans]
        for one in datagrams:
            gateway.bus.give((0, one))
        gateway.bus.give((0, b"BCCN1[9]?:7:out/y|x"), (0, b"BCCN1[9]h/p/1:8:out/last|x"))
        assert [peer.receive(), peer.receive()] == [datagrams[0], b"BCCN1[9]h/p/1:8:out/last|x"]
        peer.send(*datagrams, b"garbage", b"BCCN1[9]?:7:in/y|x", b"BCCN1[9]h/p/1:8:in/last|x")
        wait(lambda: len(gateway.bus.brought()) == 4, "what may pass", PATIENCE)
        assert gateway.bus.brought() == [*datagrams[1:4], b"BCCN1[9]h/p/1:8:in/last|x"]
        wait(lambda: gateway.bus.dropped("filtered") == 6, "the count", PATIENCE)
        assert (gateway.bus.dropped("nameless"), gateway.bus.dropped("malformed")) == (2, 1)


def test_what_can_be_no_datagram_or_peer_is_refused(tmp_path: Path) -> None:
    where = url()
    with RunningGateway(tmp_path, {"listen": [where]}) as gateway, RawPeer(where) as peer:
        gateway.peers(1)
        peer.send(b"", b"garbage", bytes(65_507), bytes(65_508), b"\xff" * 100)
        wait(lambda: len(gateway.bus.brought()) == 4, "what can be a datagram", PATIENCE)
        assert gateway.bus.brought() == [b"", b"garbage", bytes(65_507), b"\xff" * 100]
        wait(lambda: gateway.bus.dropped("oversize") == 1, "the count", PATIENCE)
        for hello in (b"GET / HTTP/1.1\r\n\r\n", b"\0SP\1\0\x70\0\0", b"\0SP\0\0\x10\0\0", b"\xff" * 8):
            with RawPeer(where, hello) as stranger:
                wait(stranger.ended, f"{hello!r} to be refused", PATIENCE)
        with RawPeer(where) as greedy:  # it announces more than any datagram can have
            gateway.peers(2)
            greedy.sock.sendall(b"\0\0\0\xff\0\0\0\0")
            wait(greedy.ended, "the end", PATIENCE)
        wait(lambda: (gateway.bus.dropped("malformed"), gateway.bus.dropped("oversize")) == (4, 2), "counts", PATIENCE)
        gateway.peers(1)
        peer.send(ONE)
        wait(lambda: gateway.bus.brought()[-1] == ONE, "the peer", PATIENCE)


def test_there_are_as_many_peers_as_may_be(tmp_path: Path) -> None:
    where, other = url(), url()
    with RunningGateway(tmp_path, {"listen": [where, other], "max_peers": 2}) as gateway:
        with RawPeer(where) as ann, RawPeer(other):
            gateway.peers(2)
            for _ in range(3):
                with RawPeer(where) as late:
                    wait(late.ended, "the refusal", PATIENCE)
            wait(lambda: gateway.bus.dropped("too_many_peers") == 3, "the count", PATIENCE)
            assert gateway.output().count("(too_many_peers)") == 3
            gateway.bus.give((0, ONE))
            assert ann.receive() == ONE
        gateway.peers(0)
        with RawPeer(where):
            gateway.peers(1)


def test_a_flood_of_silent_connections_keeps_no_peer_out(tmp_path: Path) -> None:
    where = url()
    with RunningGateway(tmp_path, {"listen": [where], "max_peers": 8}) as gateway, RawPeer(where) as peer:
        gateway.peers(1)
        before = gateway.descriptors()
        _, hard = resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, (before + MAX_GREETING // 2, hard))
        with ExitStack() as crowd:
            for _ in range(2 * MAX_GREETING):
                crowd.enter_context(socket.create_connection(place(where)))
            peer.send(b"early")
            wait(lambda: b"early" in gateway.bus.brought(), "the peer", PATIENCE)
            resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, (hard, hard))
            wait(lambda: gateway.bus.dropped("no_id") > 0, "strangers to be cut off", PATIENCE)
            with RawPeer(where) as late:
                late.send(ONE)
                wait(lambda: ONE in gateway.bus.brought(), "a peer that comes late", PATIENCE)
        wait(lambda: gateway.descriptors() <= before, "descriptors to be free again", PATIENCE)


@pytest.mark.slow
def test_a_peer_that_stops_reading_costs_only_itself(tmp_path: Path) -> None:
    where = url()
    count = 10_000
    settings = {"listen": [where], "queue": 256}
    # Everything is sent before the slow one is let go, so that each message was meant for both.
    with RunningGateway(tmp_path, settings, horizon="16s") as gateway:
        with RawPeer(where) as good, RawPeer(where, small=True) as slow:
            gateway.peers(2)
            for number in range(0, count, 100):
                gateway.bus.give(*((0, b"%b%06d" % (ONE * 20, one)) for one in range(number, number + 100)))
                for one in range(number, number + 100):  # it keeps up, and gets everything
                    assert good.receive().endswith(b"%06d" % one)
            wait(lambda: gateway.bus.report()["peers_connected"] == 1, "the slow one to go", PATIENCE)
            wait(lambda: gateway.bus.dropped("queue_full"), "the count", PATIENCE)
            # Every message has gone to the kernel or is counted.
            bus = gateway.bus
            wait(lambda: bus.report()["sent"] + bus.dropped("queue_full") == 2 * count, "all of it", PATIENCE)
            assert sum(1 for _ in slow.all()) <= bus.report()["sent"] - count
            assert gateway.bus.dropped("slow") <= 1
        wait(lambda: "(queue_full)" in gateway.output(), "the line", PATIENCE)


def test_a_daemon_that_goes_away_is_met_again_and_peers_stay(tmp_path: Path) -> None:
    where = url()
    with RunningGateway(tmp_path, {"listen": [where]}) as gateway, RawPeer(where) as peer:
        gateway.peers(1)
        gateway.bus.stop()
        wait(lambda: "is away" in gateway.output(), "the line", PATIENCE)
        peer.send(b"meanwhile")
        gateway.bus.start()
        wait(lambda: gateway.bus.brought() == [b"meanwhile"], "what has waited", PATIENCE)
        gateway.bus.give((0, ONE))
        assert peer.receive() == ONE
        assert gateway.bus.subscribed == 1


def refusal(folder: Path, nng: Mapping[str, object]) -> str:
    """What a gateway says that does not start."""
    gateway = RunningGateway(folder, nng)
    try:
        assert gateway.running.wait(PATIENCE) == 2, gateway.output()
    finally:
        gateway.kill()
        gateway.bus.close()
    return gateway.output()


def test_links_that_everybody_can_read_are_doubtful(tmp_path: Path) -> None:
    with RunningGateway(tmp_path, {"listen": [url().replace("127.0.0.1", "0.0.0.0")], "dial": [url()]}) as gateway:
        assert gateway.output().count("can read and send everything") == 1
        assert "tls+tcp" in gateway.output()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As the page about links says how to make them, and some of a stranger."""
    return made_as_documented.make(tmp_path_factory.mktemp("certificates"))


def tls(folder: Path, subject: str, **more: str) -> dict[str, str]:
    return {
        "ca": str(folder / "ca.pem"),
        "certificate": str(folder / f"{subject}.pem"),
        "key": str(folder / f"{subject}.key"),
        **more,
    }


def secure(where: str) -> str:
    return where.replace("tcp://", "tls+tcp://")


def nngcat_tls(folder: Path, where: str, subject: str = "", direction: str = "--dial") -> list[str]:
    """The words by which nngcat speaks TLS, with a certificate of its own or without."""
    # The library that it was made with looks for names alone in the certificates of those that it dials.
    place = where.replace("127.0.0.1", "localhost") if direction == "--dial" else where
    own = ["--cert", str(folder / f"{subject}.both")] if subject else []
    return [direction, place, "--cacert", str(folder / "ca.pem"), *own]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "subject", "more", "good"),
    [
        *(("listen", subject, {}, subject == "relay02") for subject in ("relay02", "stranger", "")),
        ("listen", "", {"require": "listener"}, True),
        ("dial", "relay02", {"server_name": "relay02"}, True),
        ("dial", "relay02", {}, True),  # by its address
        ("dial", "relay02", {"server_name": "relay03"}, False),
        ("dial", "stranger", {"server_name": "relay02"}, False),
    ],
)
def test_only_peers_with_a_good_certificate_are_linked(
    tmp_path: Path, certificates: Path, way: str, subject: str, more: dict[str, str], good: bool
) -> None:
    where = secure(url())
    words = nngcat_tls(certificates, where, subject, "--listen" if way == "dial" else "--dial")
    with (
        RunningGateway(tmp_path, {way: [where], "tls": tls(certificates, "relay01", **more)}) as gateway,
        nngcat(*words),
    ):
        if good:
            gateway.peers(1)
            return
        wait(lambda: gateway.bus.dropped("untrusted"), "the count", PATIENCE)
        assert gateway.bus.report()["peers_connected"] == 0


@pytest.mark.slow
def test_files_that_are_missing_or_open_to_others_stop_the_start(tmp_path: Path, certificates: Path) -> None:
    for name in ("ca.pem", "relay01.pem", "relay01.key"):
        shutil.copy(certificates / name, tmp_path / name)
    # Relative names count from the folder of the configuration.
    settings = {"listen": [secure(url())], "tls": {"ca": "ca.pem", "certificate": "relay01.pem", "key": "relay01.key"}}
    key, certificate = tmp_path / "relay01.key", tmp_path / "relay01.pem"
    for path, content, mode in (
        (key, None, 0o640),
        (certificate, None, 0o666),
        (certificate, b"no certificate\n", 0o644),
        (certificate, b"-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n", 0o644),
        (key, None, 0),
    ):
        path.chmod(mode)
        if content is not None:
            path.write_bytes(content)
        if not mode:
            path.unlink()
        output = refusal(tmp_path, settings)
        assert (str(path) in output, "Traceback" in output) == (True, False), output
        if mode:
            key.chmod(0o600)
