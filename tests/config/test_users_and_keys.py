"""Users, groups and key files that a configuration names."""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from bccnd.config import load, read
from bccnd.config.schema import IntegritySettings
from bccnd.core.trust.integrity import MIN_KEY, make_checker
from bccnd.core.trust.signatures import generate, public_of
from bccnd.core.wire.bccn1 import build
from bccnd.errors import Fault
from tests.config.texts import PLACE, fault_of, faults
from tests.support import NOBODY, need_root


def test_users_and_groups_are_resolved_by_name_and_number() -> None:
    group = grp.getgrgid(os.getegid())
    user = pwd.getpwuid(os.geteuid())
    text = (
        f"bus: {{group: {group.gr_name}, sockets: [{{path: /a, group: 4294967294}}]}}\n"
        f"access: [{{user: {user.pw_name}, group: '12345'}}, {{user: 54321}}, {{user: '0'}}]\n"
    )
    configuration = read(text, "x")
    assert configuration.uids == {user.pw_name: user.pw_uid, "54321": 54_321, "0": 0}
    assert configuration.gids == {group.gr_name: group.gr_gid, "4294967294": 4_294_967_294, "12345": 12_345}


def test_a_number_that_no_user_or_group_can_have_is_refused() -> None:
    # A superscript digit, the number that stands for none, and numbers that are too long.
    for number in ("'\u00b2'", "'4294967295'", "4294967295", "'" + "9" * 20 + "'", "'" + "9" * 5000 + "'"):
        assert fault_of(f"access: [{{user: {number}}}]").path == "access[0].user"
        assert fault_of(f"access: [{{group: {number}}}]").path == "access[0].group"
        assert fault_of(f"bus: {{group: {number}}}").path == "bus.group"


# -- keys

KEY = b"0123456789abcdef0123456789abcdef"
PRIVATE = generate()
PUBLIC = public_of(PRIVATE)


def key_file(folder: Path, content: bytes = KEY, mode: int = 0o600, name: str = "key") -> Path:
    path = folder / name
    path.unlink(missing_ok=True)  # one that may only be read
    path.write_bytes(content)
    path.chmod(mode)
    return path


def public_file(folder: Path, content: bytes = PUBLIC, mode: int = 0o644, name: str = "sig.key.pub") -> Path:
    return key_file(folder, content, mode, name)


def with_keys(*paths: Path | str) -> tuple[bytes, ...]:
    """The secrets for HMAC that are read of some files."""
    names = ", ".join(f"'{path}'" for path in paths)
    return read(f"integrity:\n  algorithm: hmac\n  keys: [{names}]\n", PLACE).keys


def signing(keys: Sequence[Path] = (), signers: Mapping[str, Sequence[Path]] | None = None, more: str = "") -> str:
    """A configuration for signatures; keys begin on line 4, the signers behind them."""
    lines = ["integrity:", "  algorithm: sig", "  keys:" + ("" if keys else " []")]
    lines += [f"  - '{path}'" for path in keys]
    if signers:
        lines.append("  signers:")
        for prefix, paths in signers.items():
            lines.append(f"    '{prefix}':")
            lines += [f"    - '{path}'" for path in paths]
    return "\n".join(lines) + "\n" + more


def key_text(path: Path, kind: str) -> str:
    """A configuration with a file as a secret for HMAC, as a private key (``sig``) or as a public one (``pub``)."""
    if kind == "hmac":
        return f"integrity:\n  algorithm: hmac\n  keys: ['{path}']\n"
    return signing([path]) if kind == "sig" else signing(signers={"relay01": [path]})


def key_fault(path: Path, kind: str = "hmac") -> Fault:
    """What is wrong with a file as a key of this kind."""
    fault = fault_of(key_text(path, kind))
    place = "integrity.signers.relay01[0]" if kind == "pub" else "integrity.keys[0]"
    assert (fault.line, fault.path) == ({"hmac": 3, "sig": 4, "pub": 6}[kind], place)
    assert str(path) in fault.reason
    assert KEY.decode() not in str(fault)
    assert "PRIVATE" not in str(fault)
    return fault


def test_keys_keep_their_order_because_the_first_one_signs(tmp_path: Path) -> None:
    binary = b"\x00\xff \n" * 5 + b"x"
    contents = [b"c" * 32, b"a" * 32 + b"\n", binary + b"\r\n", b"x" * MIN_KEY]
    paths = [key_file(tmp_path, content, name=f"key{number}") for number, content in enumerate(contents)]
    assert with_keys(*paths) == (b"c" * 32, b"a" * 32, binary, b"x" * MIN_KEY)


def test_a_relative_name_begins_at_the_configurations_folder(tmp_path: Path) -> None:
    key_file(tmp_path)
    public_file(tmp_path, name="relay02.pub")
    path = tmp_path / "bccnd.yaml"
    path.write_text("integrity: {algorithm: hmac, keys: [key]}\n")
    assert load(str(path)).keys == (KEY,)
    path.write_text("integrity: {algorithm: sig, signers: {relay02: [relay02.pub]}}\n")
    assert load(str(path)).signers == {b"relay02": [PUBLIC.rstrip(b"\n")]}


SHORT = b"x" * (MIN_KEY - 1) + b"\n"
#: tests/test_key_files.py tries what else a secret or a private key cannot be
BAD_KEYS: list[tuple[str, bytes, int, str]] = [
    *(("hmac", KEY, mode, "chmod") for mode in (0o644, 0o640, 0o604, 0o660, 0o610, 0o444, 0o441)),
    *(("pub", PUBLIC, mode, "chmod") for mode in (0o664, 0o646, 0o666, 0o620, 0o602, 0o777)),
    *(("sig", PRIVATE, 0o644, "chmod"), ("sig", PUBLIC, 0o600, "keygen"), ("hmac", SHORT, 0o600, "keygen")),
    *(("pub", content, 0o644, "keygen") for content in (KEY, PRIVATE, PUBLIC[:60])),
]


def test_a_file_that_is_no_key_or_not_ours_alone_is_refused(tmp_path: Path) -> None:
    for kind, content, mode, remedy in BAD_KEYS:
        fault = key_fault(key_file(tmp_path, content, mode), kind)
        assert remedy in fault.remedy, (kind, mode)
        assert remedy != "chmod" or f"{mode:04o}" in fault.reason
    for kind, content, modes in (("hmac", KEY, (0o400, 0o700)), ("pub", PUBLIC, (0o600, 0o444, 0o604, 0o640, 0o755))):
        for mode in modes:
            read(key_text(key_file(tmp_path, content, mode), kind), PLACE)


@pytest.mark.root
def test_files_of_root_and_of_other_users(tmp_path: Path) -> None:
    need_root("only root can give a file away")
    # A credential of systemd belongs to root.
    credential = key_file(tmp_path, mode=0o440)
    assert with_keys(credential) == (KEY,)
    os.chown(credential, NOBODY, -1)
    key_fault(credential)
    for kind, path in (("hmac", key_file(tmp_path, name="other")), ("pub", public_file(tmp_path))):
        os.chown(path, NOBODY, -1)
        assert key_fault(path, kind).remedy.startswith("chown")


def test_every_bad_key_is_named(tmp_path: Path) -> None:
    good, nowhere = public_file(tmp_path), tmp_path / "nowhere"
    writable = public_file(tmp_path, mode=0o666, name="writable.pub")
    found = {fault.path: fault.line for fault in faults(signing([nowhere], {"a": [good, nowhere], "b": [writable]}))}
    assert found == {"integrity.keys[0]": 4, "integrity.signers.a[1]": 8, "integrity.signers.b[0]": 10}


def test_a_private_key_and_public_ones_by_prefix_are_read(tmp_path: Path) -> None:
    other = public_of(generate())
    mine, theirs = public_file(tmp_path), public_file(tmp_path, other, name="other.pub")
    text = signing(
        [key_file(tmp_path, PRIVATE, name="sig.key")],
        {"relay01": [mine, theirs], "relay02/cardsys": [theirs], "": [mine]},
    )
    configuration = read(text, PLACE)
    ours, others = PUBLIC.rstrip(b"\n"), other.rstrip(b"\n")
    assert configuration.keys == (PRIVATE.rstrip(b"\n"),)
    assert configuration.signers == {b"relay01": [ours, others], b"relay02/cardsys": [others], b"": [ours]}
    door = make_checker("sig", configuration.keys, configuration.signers)
    assert door.verified_body(build(b"relay01:1:c|x", door.sign(b"relay01:1:c|x"))) == b"relay01:1:c|x"
    # Either half may be missing.
    assert read(signing(signers={"relay01": [mine]}), "x").keys == ()
    assert read(signing([key_file(tmp_path, PRIVATE, name="sig.key")]), "x").signers == {}
    # A program that makes its settings itself has no file opened.
    assert IntegritySettings(algorithm="sig", keys=("/nowhere",), signers={"a": ("/nowhere",)}).keys == ("/nowhere",)


def test_keys_must_fit_the_algorithm(tmp_path: Path) -> None:
    secret, public = key_file(tmp_path), public_file(tmp_path)
    key, second = (key_file(tmp_path, generate(), name=name) for name in ("sig.key", "second.key"))
    for text in (
        *(f"integrity: {{algorithm: {algorithm}, keys: ['{secret}']}}" for algorithm in ("none", "crc32")),
        *(f"integrity: {{algorithm: {algorithm}, signers: {{a: ['{public}']}}}}" for algorithm in ("none", "crc32")),
        f"integrity: {{algorithm: hmac, keys: ['{secret}'], signers: {{a: ['{public}']}}}}",
        signing([key, second]),
    ):
        assert fault_of(text).path == "integrity"


def test_a_prefix_is_the_beginning_of_a_src(tmp_path: Path) -> None:
    public = public_file(tmp_path)
    for prefix in ("relay01", "relay01/cardsys", "relay01/cardsys/7", "", "?", "!", "x" * 128):
        assert list(read(signing(signers={prefix: [public]}), "x").signers) == [prefix.encode()]
    for prefix in ("relay01/", "relay01/*", "*", "a b", "a:b", "a|b", "gr\u00fcn", "x" * 129, "/"):
        fault = fault_of(signing(signers={prefix: [public]}))
        assert (fault.line, fault.path) == (5, f"integrity.signers.{prefix}")


def test_heartbeats_need_a_key_to_sign_them(tmp_path: Path) -> None:
    signers = {"relay01": [public_file(tmp_path)]}
    assert "integrity.keys" in fault_of(signing(signers=signers, more="heartbeat: {interval: 5s}\n")).remedy
    assert read(signing(signers=signers, more="heartbeat: {interval: 0}\n"), "x").signers
    assert read(
        signing([key_file(tmp_path, PRIVATE, name="sig.key")], signers, "heartbeat: {interval: 5s}\n"), "x"
    ).signers


@pytest.fixture
def credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of credentials of this service."""
    folder = tmp_path / "credentials"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(folder))
    return folder


def test_a_key_is_taken_from_the_credentials(tmp_path: Path, credentials: Path) -> None:
    key_file(credentials, b"k" * 32, 0o400, "keys_hmac.key")
    key_file(credentials, b"o" * 32, 0o400, "old.key")
    here = key_file(tmp_path, b"h" * 32, name="here.key")
    assert with_keys("/etc/bccnd/keys/hmac.key", "/nowhere/old.key", here) == (b"k" * 32, b"o" * 32, b"h" * 32)
    key_file(credentials, PRIVATE, 0o400, "keys_sig.key")
    public_file(credentials, mode=0o400, name="keys_fleet_relay01.pub")
    text = signing([Path("/etc/bccnd/keys/sig.key")], {"relay01": [Path("/etc/bccnd/keys/fleet/relay01.pub")]})
    found = read(text, PLACE)
    assert found.keys == (PRIVATE.rstrip(),)
    assert found.signers == {b"relay01": [PUBLIC.rstrip()]}


def test_a_key_that_was_not_passed_or_is_bad_needs_a_restart(tmp_path: Path, credentials: Path) -> None:
    for kind in ("hmac", "sig", "pub"):
        assert "systemctl restart bccnd" in key_fault(Path("/etc/bccnd/keys/new.key"), kind).remedy
    key_file(credentials, b"short", 0o400, "keys_hmac.key")
    # The file itself may have been mended since.
    assert "systemctl restart bccnd" in key_fault(Path("/etc/bccnd/keys/hmac.key")).remedy
    assert "systemctl" not in key_fault(key_file(tmp_path, KEY, 0o644)).remedy
