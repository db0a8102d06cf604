"""Keys from files: what is taken, what is refused, and that nothing waits for a file that is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import bccnd
from bccnd.core.trust import signatures
from bccnd.core.trust.integrity import MIN_KEY
from bccnd.key_files import passed_key

KEY = b"0123456789abcdef0123456789abcdef"
PRIVATE = signatures.generate()


def file(folder: Path, content: bytes, mode: int) -> str:
    path = folder / "key"
    path.write_bytes(content)
    path.chmod(mode)
    return str(path)


def test_a_secret_is_the_file_without_its_line_end(tmp_path: Path) -> None:
    for end in (b"", b"\n", b"\r\n"):
        assert bccnd.read_key(file(tmp_path, KEY + end, 0o600)) == KEY
    private = signatures.generate()
    public = signatures.public_of(private)
    assert bccnd.read_key(file(tmp_path, private, 0o600), "sig") == private.rstrip()
    assert bccnd.read_public_key(file(tmp_path, public, 0o644)) == public.rstrip()
    for mode in (0o664, 0o646, 0o666):
        with pytest.raises(bccnd.BadKey, match="others can replace it"):
            bccnd.read_public_key(file(tmp_path, public, mode))


@pytest.mark.parametrize(
    ("content", "mode", "algorithm", "output"),
    [
        (KEY, 0o640, "hmac", "others can read it"),
        (KEY, 0o604, "sig", "others can read it"),
        (KEY[: MIN_KEY - 1], 0o600, "hmac", "16"),
        (b"x" * 5000, 0o600, "hmac", "so it is not a key"),
        *((key, 0o600, "hmac", "signatures") for key in (PRIVATE, signatures.public_of(PRIVATE))),
        *((key, 0o600, "sig", "private key") for key in (KEY, signatures.public_of(PRIVATE))),
    ],
)
def test_a_secret_that_protects_nothing_is_refused(
    tmp_path: Path, content: bytes, mode: int, algorithm: str, output: str
) -> None:
    path = file(tmp_path, content, mode)
    with pytest.raises(bccnd.BadKey) as refused:
        bccnd.read_key(path, algorithm)
    assert output in refused.value.detail
    assert path in refused.value.detail
    assert refused.value.remedy in str(refused.value)


@pytest.mark.parametrize("read", [bccnd.read_key, bccnd.read_public_key])
def test_nothing_waits_for_a_pipe_a_directory_or_nothing(tmp_path: Path, read: object) -> None:
    assert callable(read)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    for path in (str(pipe), str(tmp_path), "/dev/null", str(tmp_path / "none")):
        with pytest.raises(bccnd.BadKey):
            read(path)


#: two folders may hold files of the same name
MANY = ["keys_a_x.pub", "keys_b_x.pub", "keys_x.pub"]


@pytest.mark.parametrize(
    ("there", "path", "found"),
    [
        *(
            (["keys_hmac.key"], path, "keys_hmac.key")
            for path in ("/etc/bccnd/keys/hmac.key", "hmac.key", "./hmac.key", "/somewhere/else/hmac.key")
        ),
        (["hmac.key"], "/etc/bccnd/keys/hmac.key", "hmac.key"),
        (["hmac.key", "keys_hmac.key"], "/etc/bccnd/keys/hmac.key", "keys_hmac.key"),
        *((MANY, f"/etc/bccnd/keys/{name}x.pub", f"keys_{name.replace('/', '_')}x.pub") for name in ("a/", "b/", "")),
        (["keys_hmac.key"], "/etc/bccnd/keys/other.key", None),
        (["keys_hmac.key"], "/etc/bccnd/keys/mac.key", None),
        ([], "/etc/bccnd/keys/hmac.key", None),
    ],
)
def test_a_key_that_systemd_has_passed_is_found_by_its_name(
    tmp_path: Path, there: list[str], path: str, found: str | None
) -> None:
    for name in there:
        (tmp_path / name).write_bytes(KEY)
    wanted = None if found is None else str(tmp_path / found)
    assert passed_key(path, {"CREDENTIALS_DIRECTORY": str(tmp_path)}) == wanted
    for environment in ({}, {"CREDENTIALS_DIRECTORY": ""}, {"CREDENTIALS_DIRECTORY": "/nowhere"}):
        assert passed_key("/etc/passwd", environment) is None
