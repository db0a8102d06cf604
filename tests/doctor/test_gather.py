"""Facts of this very machine: files, sockets, users, processes, as they are."""

from __future__ import annotations

import os
import secrets
import socket
import stat
from pathlib import Path

import pytest

from bccnd.config import SegmentSettings, Settings, SocketSettings
from bccnd.doctor import host, network, system
from bccnd.doctor.daemon import ask_daemon, look_at_metrics, peer_pid
from bccnd.doctor.examine import read
from bccnd.errors import ConfigError
from tests.gateways import certificates
from tests.support import BROADCAST, Hub, free_port


def key(path: Path, text: bytes = b"0123456789abcdef0123456789abcdef", mode: int = 0o600) -> str:
    path.write_bytes(text)
    path.chmod(mode)
    return str(path)


def test_a_key_is_looked_at_and_read(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    well = host.look_at_key("key", key(tmp_path / "a"))
    assert (well.trouble, well.mode, well.uid, well.content, well.loose_folder) == ("", 0o600, os.geteuid(), "", False)
    assert "holds 3 bytes" in host.look_at_key("key", key(tmp_path / "b", b"abc")).content
    # Modes are for the judge, who knows whose the daemon is.
    assert (host.look_at_key("key", key(tmp_path / "c", mode=0o644)).content) == ""
    assert host.look_at_key("key", str(tmp_path / "d")).trouble == "No such file or directory"
    assert not host.look_at_key("key", str(tmp_path)).regular
    tmp_path.chmod(0o777)
    assert host.look_at_key("key", str(tmp_path / "a")).loose_folder


def test_a_certificate_is_read_with_its_dates(tmp_path: Path) -> None:
    certificates.make(tmp_path)
    facts = host.look_at_certificate("tls.certificate", str(tmp_path / "relay01.pem"))
    assert facts.content == ""
    assert facts.expires_in is not None
    assert facts.expires_in > 0
    assert facts.begins_in is not None
    assert facts.begins_in < facts.expires_in
    assert "no certificate" in host.look_at_certificate("tls.ca", key(tmp_path / "x")).content


def test_a_socket_of_the_bus_is_tried_out(tmp_path: Path) -> None:
    with Hub(tmp_path) as hub:
        facts = host.look_at_socket(SocketSettings(path=hub.path))
        assert (facts.there, facts.is_socket, facts.mode, facts.error) == (True, True, 0o600, "")
        assert peer_pid(hub.path) == os.getpid()
    assert not host.look_at_socket(SocketSettings(path=str(tmp_path / "none"))).there
    assert not host.look_at_socket(SocketSettings(path=key(tmp_path / "file"))).is_socket
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.bind(str(tmp_path / "deaf"))
        facts = host.look_at_socket(SocketSettings(path=str(tmp_path / "deaf")))
    assert (facts.error, stat.S_ISSOCK(os.stat(facts.path).st_mode)) == ("ECONNREFUSED", True)
    assert host.look_at_socket(SocketSettings(path=f"@{secrets.token_hex(8)}")).error == "ECONNREFUSED"
    assert ask_daemon(str(tmp_path / "deaf")).error == "no_daemon"


def test_who_we_are_is_known() -> None:
    gid = os.getegid()
    here = host.look_at_member(str(gid))
    assert (here.uid, here.exists, here.in_session) == (os.geteuid(), True, True)
    assert not host.look_at_member("no-such-group").exists


def test_who_holds_a_port_is_found_with_what_was_dropped() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for _ in range(64):
                sender.sendto(b"x" * 1000, ("127.0.0.1", port))
        (found,) = network.holders(port) or ()
        assert (found.pid, found.uid) == (os.getpid(), os.geteuid())
        assert found.program == system.program_of(os.getpid())
        assert found.drops > 0
        assert network._granted(port, os.getpid(), (found,)) in (None, sock.getsockopt(socket.SOL_SOCKET, 8) // 2)
    assert network.holders(free_port()) == ()


def test_the_loopback_is_an_interface_like_another() -> None:
    facts = network.look_at_interface("lo")
    assert (facts.there, facts.up, facts.loopback) == (True, True, True)
    assert any(address.startswith("127.0.0.1") for address in facts.addresses)
    assert facts.mtu == int(Path("/sys/class/net/lo/mtu").read_text())
    assert not network.look_at_interface("nosuch0").there


def test_a_segment_is_tried_out_and_nothing_of_it_stays() -> None:
    port = free_port()
    settings = SegmentSettings(address=BROADCAST, port=port, receive_buffer=1 << 16)
    facts = network.look_at_segment(settings, 0)
    assert (facts.refused, facts.grantable, facts.granted, facts.holders) == (None, 1 << 16, None, ())
    assert network.holders(port) == ()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as selfish:
        selfish.bind(("", port))
        refused = network.look_at_segment(settings, 0).refused
    assert refused is not None
    assert refused[0] == "port_in_use"


def test_the_metrics_are_asked_for() -> None:
    closed = free_port()
    assert look_at_metrics(None).where == ""
    facts = look_at_metrics(("127.0.0.1", closed))
    assert (facts.where, facts.exposed, facts.trouble) == (f"127.0.0.1:{closed}", False, "Connection refused")
    assert look_at_metrics(("0.0.0.0", closed)).exposed


def test_disk_limits_and_clock(tmp_path: Path) -> None:
    recorder = Settings.model_validate({"recorder": {"journal": str(tmp_path)}}).recorder
    (disk,) = host.look_at_disks(recorder, [])
    assert disk.there
    assert 0 < disk.free <= disk.total
    assert disk.writable
    (elsewhere,) = host.look_at_disks(recorder.model_copy(update={"journal": "s3://somewhere"}), [])
    assert elsewhere.trouble
    assert (host.look_at_descriptors(os.getpid(), 10).limit or 0) > 0
    assert host.look_at_descriptors(0, 10).limit is None
    clock = host.look_at_clock()
    assert clock.trouble or clock.largest_error >= 0


def test_programs_of_the_system_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert system.ask("echo", "well").text == "well\n"
    assert "there is no" in system.ask("nosuchprogram").trouble
    assert system.ask("sh", "-c", "echo oh dear >&2; exit 3").trouble == "sh says: oh dear"
    monkeypatch.setattr(system, "PATIENCE", 0.05)
    assert "has not answered" in system.ask("sleep", "60").trouble


def test_a_configuration_is_read_as_far_as_it_can_be(tmp_path: Path) -> None:
    file = tmp_path / "b.yaml"
    file.write_text("integrity: {algorithm: hmac, keys: [nosuch.key]}\nhost: relay07\n")
    found = read(str(file))
    # The file with the key is looked at by itself.
    assert (found.whole, found.faults) == (None, ())
    assert found.settings is not None
    assert found.settings.host == "relay07"
    file.write_text("integrity: {algorithm: hmac, keys: [nosuch.key]}\nbus: {group: no-such-group}\n")
    assert [fault.path for fault in read(str(file)).faults] == ["bus.group"]
    with pytest.raises(ConfigError):
        read(str(tmp_path / "none"))
