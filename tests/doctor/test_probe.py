"""What the probe reads of this very machine: files, sockets, users, processes, as they are."""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
from pathlib import Path

import pytest

from bccnd.config import SegmentSettings
from bccnd.doctor import probe_host
from bccnd.doctor.probe import read_target
from bccnd.doctor.probe_daemon import ask_daemon, peer_pid, trip_without_daemon
from bccnd.doctor.probe_host import ProbeError
from bccnd.endpoint.endpoint import Endpoint
from bccnd.errors import ConfigError, StartError
from tests.endpoint.segments import verdicts
from tests.gateways import certificates
from tests.support import BROADCAST, Hub, free_port


def test_commands_have_a_timeout_and_say_why_they_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert probe_host.run("echo", "well") == "well\n"
    assert probe_host.run_json("echo", '[{"a": 1}]') == [{"a": 1}]
    for command, why in (
        (["nosuchprogram"], "not installed"),
        (["sh", "-c", "echo oh dear >&2; exit 3"], "sh: oh dear"),
        (["echo", "{"], "no JSON"),
    ):
        with pytest.raises(ProbeError, match=why):
            probe_host.run_json(*command)
    monkeypatch.setattr(probe_host, "TIMEOUT", 0.05)
    with pytest.raises(ProbeError, match="timed out"):
        probe_host.run_json("sleep", "60")


def test_keys_and_certificates_are_read(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"0123456789abcdef0123456789abcdef")
    key.chmod(0o644)  # permissions are for the check, which knows the daemon's user
    assert probe_host.key_problem(str(key), "hmac") == ""
    key.chmod(0o600)
    key.write_bytes(b"abc")
    assert probe_host.key_problem(str(key), "hmac").startswith("has 3 bytes")
    assert probe_host.key_problem(str(key), "") != ""
    certificates.make(tmp_path)
    assert probe_host.certificate_expires(str(tmp_path / "relay01.pem")) > 0
    with pytest.raises(ValueError):
        probe_host.certificate_expires(str(key))


def test_a_socket_of_the_bus_is_tried_out(tmp_path: Path) -> None:
    with Hub(tmp_path) as hub:
        found = probe_host.bus_socket(hub.path)
        assert (found.error, found.mode, found.group) == ("", 0o600, probe_host.group_name(os.getegid()))
        assert peer_pid(hub.path) == os.getpid()
    (tmp_path / "file").touch()
    assert probe_host.bus_socket(str(tmp_path / "file")).error == "ENOTSOCK"
    assert probe_host.bus_socket(str(tmp_path / "none")).error == "ENOENT"
    assert probe_host.bus_socket(f"@{secrets.token_hex(8)}").error == "ECONNREFUSED"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.bind(str(tmp_path / "deaf"))
        assert probe_host.bus_socket(str(tmp_path / "deaf")).error == "ECONNREFUSED"
        assert ask_daemon(str(tmp_path / "deaf")).error == "no_daemon"


def test_the_user_and_its_groups_are_known() -> None:
    found = probe_host.user()
    assert probe_host.group_name(os.getegid()) in found.session_groups
    assert probe_host.group_name("no-such-group") == "no-such-group"


def test_the_sockets_at_a_port_are_found_with_what_was_dropped() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for _ in range(64):
                sender.sendto(b"x" * 1000, ("127.0.0.1", port))
        (found,) = probe_host.udp_sockets(port)
        assert found.processes == {os.getpid(): Path("/proc/self/comm").read_text().strip()}
        assert found.drops > 0
        assert found.buffer == sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
    assert probe_host.udp_sockets(free_port()) == []


def test_a_segment_is_tried_out_and_nothing_of_it_stays() -> None:
    port = free_port()
    settings = SegmentSettings(address=BROADCAST, port=port, receive_buffer=1 << 16)
    assert probe_host.open_segment(settings) >= 1 << 16
    assert probe_host.udp_sockets(port) == []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as selfish:
        selfish.bind(("", port))
        with pytest.raises(StartError, match="in use"):
            probe_host.open_segment(settings)


def test_without_a_daemon_a_signed_message_comes_back(tmp_path: Path) -> None:
    """Other hosts take it for one to another program, and not for a forgery."""
    key, file, port = tmp_path / "key", tmp_path / "b.yaml", free_port()
    key.write_bytes(b"0123456789abcdef0123456789abcdef")
    key.chmod(0o600)
    integrity = {"algorithm": "hmac", "keys": [str(key)]}
    file.write_text(json.dumps({"segments": [{"address": BROADCAST, "port": port}], "integrity": integrity}))
    found = read_target(str(file)).configuration
    assert found is not None
    with Endpoint("other/p/1", BROADCAST, port, "0.0.0.0", found.keys, algorithm="hmac") as other:
        trip = trip_without_daemon(found)
        assert (trip.failed, trip.returned, trip.missing) == ("", 1, ())
        assert other.recv(0.1) is None
        assert verdicts(other) == {"not_addressed": 1}


def test_a_log_that_cannot_be_read_is_no_log_without_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    if not Path("/run/systemd/system").exists():
        with pytest.raises(ProbeError, match="may read the log"):
            probe_host.recent_warnings(["bccnd.service"])
    monkeypatch.setitem(sys.modules, "systemd.journal", None)
    with pytest.raises(ProbeError, match="python3-systemd is not installed"):
        probe_host.recent_warnings(["bccnd.service"])


@pytest.mark.parametrize("message", ["no key. Remedy: make it", "no key\n  remedy: make it\nno host\n  remedy: set it"])
def test_a_remedy_is_shown_apart_from_its_message(message: str) -> None:
    assert probe_host.without_remedy(message) == "no key"


def test_a_configuration_is_read_as_far_as_it_can_be(tmp_path: Path) -> None:
    file = tmp_path / "b.yaml"
    file.write_text("integrity: {algorithm: hmac, keys: [nosuch.key]}\nhost: relay07\n")
    found = read_target(str(file))
    # The key file has a check of its own.
    assert (found.configuration, found.faults) == (None, ())
    assert found.settings is not None
    assert found.settings.host == "relay07"
    file.write_text("integrity: {algorithm: hmac, keys: [nosuch.key]}\nbus: {group: no-such-group}\n")
    assert [fault.path for fault in read_target(str(file)).faults] == ["bus.group"]
    with pytest.raises(ConfigError):
        read_target(str(tmp_path / "none"))
