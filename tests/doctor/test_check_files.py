"""Configuration, keys, certificates, the recorder's folders: each row changes one answer of a host that is well."""

from __future__ import annotations

import stat
from types import SimpleNamespace
from typing import Any

import pytest

from bccnd.doctor import check_files
from bccnd.doctor.probe import Target
from bccnd.errors import Fault
from tests.doctor.probes import assert_found, probe

KEY = "/etc/bccnd/keys/hmac.key"
MISSING = FileNotFoundError(2, "No such file or directory")
DENIED = PermissionError(13, "Permission denied")


def test_configuration() -> None:
    made = probe()
    assert_found(check_files.check_configuration(made), "ok", "/etc/bccnd/bccnd.yaml: in order")
    made.target = Target("/f", (Fault("/f", 3, "bus.mode", "is no mode", "write it so"), Fault("/f", 0, "", "x", "y")))
    found = list(check_files.check_configuration(made))
    assert [one.state for one in found] == ["wrong", "wrong", "not checked"]
    assert found[0][1:] == ("/f:3: bus.mode: is no mode", "write it so")


def file(mode: int = 0o600, uid: int = 0, kind: int = stat.S_IFREG, folder: int = 0o755) -> Any:
    """`os.stat` for a file and its folder."""
    return lambda path: SimpleNamespace(st_mode=kind | mode if "." in path else stat.S_IFDIR | folder, st_uid=uid)


@pytest.mark.parametrize(
    ("changes", "state", "text", "remedy"),
    [
        ({}, "ok", f"key {KEY}: mode 0600, of uid 0", ""),
        ({"stat": file(0o440)}, "ok", "mode 0440", ""),
        ({"stat": file(0o644)}, "wrong", "mode 0644: others can read it", f"chmod 600 {KEY}"),
        ({"stat": file(0o440, uid=7)}, "wrong", "others can read it", "chmod 600"),
        ({"stat": file(uid=1000)}, "wrong", "belongs to uid 1000", "chown 0 /etc"),
        ({"stat": file(folder=0o777)}, "wrong", "others can write to its folder", "chmod go-w /etc/bccnd/keys"),
        ({"stat": file(folder=0o1777)}, "ok", "mode 0600", ""),
        ({"stat": file(kind=stat.S_IFIFO)}, "wrong", "not a regular file", "bccn keygen"),
        ({"stat": MISSING}, "wrong", "No such file", "bccn keygen"),
        ({"stat": DENIED}, "not checked", "may not read the folder", "as root"),
        ({"access": False}, "not checked", "may not read", "as root"),
        ({"key_problem": "has 3 bytes, at least 16 are required"}, "wrong", "has 3 bytes", "right file"),
    ],
)
def test_keys(changes: dict[str, Any], state: str, text: str, remedy: str) -> None:
    made = probe({"integrity": {"algorithm": "hmac", "keys": [KEY]}}, **changes)
    assert_found(check_files.check_keys(made), state, text, remedy)


def test_public_keys_may_be_read_by_others() -> None:
    signed = {"algorithm": "sig", "signers": {"relay02": ["relay02.pub"]}}
    made = probe({"integrity": signed}, stat=file(0o644))
    found = list(check_files.check_keys(made))
    assert [one.state for one in found] == ["ok", "look"]
    assert "public key of relay02 /etc/bccnd/relay02.pub" in found[0].finding
    assert_found(check_files.check_keys(probe({"integrity": signed}, stat=file(0o664))), "wrong", "can replace it")
    by_hand = probe({"integrity": signed}, stat=file(0o644), units={}, owner=0)
    assert [one.state for one in check_files.check_keys(by_hand)] == ["ok"]


@pytest.mark.parametrize(
    ("expires", "state", "text"),
    [
        (90 * 86_400.0, "ok", " expires in 90 days"),
        (3 * 86_400.0, "look", " expires in 3 days"),
        (-86_400.0, "wrong", " has expired"),
        (ValueError(), "wrong", ": has no certificate"),
    ],
)
def test_certificates(expires: object, state: str, text: str) -> None:
    tls = {"ca": "tls/ca.pem", "certificate": "tls/a.pem", "key": "tls/a.key"}
    made = probe({"gateways": {"nng": {"listen": ["tls+tcp://0.0.0.0:5410"], "tls": tls}}}, certificate_expires=expires)
    found = list(check_files.check_certificates(made))
    assert [one.state for one in found] == [state, state, "ok"]
    assert_found(iter(found), state, f"tls.certificate /etc/bccnd/tls/a.pem{text}")
    assert not list(check_files.check_certificates(probe()))


ENABLED = {"units": {"bccnd-recorder.service": {"UnitFileState": "enabled"}}}


@pytest.mark.parametrize(
    ("disk", "enabled", "state"),
    [
        (SimpleNamespace(free=50 << 30, total=100 << 30), {}, "ok"),
        (SimpleNamespace(free=1 << 20, total=100 << 30), ENABLED, "wrong"),
        (SimpleNamespace(free=1 << 20, total=100 << 30), {}, "look"),
        (SimpleNamespace(free=4 << 30, total=100 << 30), {}, "look"),
        (MISSING, ENABLED, "wrong"),
        (MISSING, {}, "not checked"),
    ],
)
def test_recorder(disk: object, enabled: dict[str, Any], state: str) -> None:
    assert_found(check_files.check_recorder(probe(disk_usage=disk, **enabled)), state, "journal /var/lib/bccnd/journal")
