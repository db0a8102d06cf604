"""Values that name something on the host: key files, users and groups.

They are looked up while the file is validated, if `References` are passed as its context: nothing is found to be
missing after the start.
"""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Callable
from functools import partial
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, ValidationInfo

from bccnd.config.values import Text, refuse
from bccnd.core.formats.quoting import quote
from bccnd.errors import BadKey
from bccnd.key_files import passed_key, read_key, read_public_key
from bccnd.paths import KEY_FOLDER

_RESTART: Final = "'systemctl restart bccnd' (clients stay connected)"


class References:
    """What was found: the bytes of keys, the numbers of users and groups. Relative paths begin at ``directory``."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self.keys: list[bytes] = []
        self.public_keys: dict[str, bytes] = {}
        self.uids: dict[str, int] = {}
        self.gids: dict[str, int] = {}

    def path(self, name: str) -> str:
        return os.path.join(self._directory, name)


def _read_key(read: Callable[[str], bytes], path: str) -> bytes:
    """Read the key at a path, or the credential that systemd has passed in its place."""
    passed = passed_key(path)
    try:
        return read(passed or path)
    except BadKey as bad:
        detail, remedy = bad.detail, bad.remedy
        if passed is not None:
            detail = detail.replace(passed, f"{path}, as passed by systemd,")
            remedy = f"{remedy.replace(passed, path)}; then {_RESTART}"
        elif isinstance(bad.__cause__, OSError) and os.environ.get("CREDENTIALS_DIRECTORY"):
            name = os.path.basename(path)
            remedy = f"systemd passes keys only at the start: put {name} into {KEY_FOLDER} and {_RESTART}"
        raise refuse(detail, remedy) from bad


def resolve_key(name: str, info: ValidationInfo) -> str:
    if isinstance(info.context, References):
        read = partial(read_key, algorithm=info.data.get("algorithm", "hmac"))
        info.context.keys.append(_read_key(read, info.context.path(name)))
    return name


def resolve_public_key(name: str, info: ValidationInfo) -> str:
    if isinstance(info.context, References):
        info.context.public_keys[name] = _read_key(read_public_key, info.context.path(name))
    return name


def _find_id(name: str, kind: str, look_up: Callable[[], int]) -> int:
    """Return the number of a user or group, which may be given as a number; the largest one stands for none."""
    if not name.isdigit():
        try:
            return look_up()
        except KeyError:
            remedy = f"create it ({kind}add --system {name}), or remove it"
            raise refuse(f"no {kind} is named {name}", remedy) from None
    if not name.isascii() or len(name) > 10 or int(name) >= (1 << 32) - 1:
        raise refuse(f"{quote(name)} is not the number of a {kind}", "write a number below 4294967295, or a name")
    return int(name)


def resolve_user(name: str, info: ValidationInfo) -> str:
    if isinstance(info.context, References):
        info.context.uids[name] = _find_id(name, "user", lambda: pwd.getpwnam(name).pw_uid)
    return name


def resolve_group(name: str, info: ValidationInfo) -> str:
    if isinstance(info.context, References):
        info.context.gids[name] = _find_id(name, "group", lambda: grp.getgrnam(name).gr_gid)
    return name


def number_as_text(value: object) -> object:
    """Convert the number of a user or group to text."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 32 else value


KeyFile = Annotated[Text, AfterValidator(resolve_key)]
PublicKeyFile = Annotated[Text, AfterValidator(resolve_public_key)]
User = Annotated[Text, BeforeValidator(number_as_text), AfterValidator(resolve_user)]
Group = Annotated[Text, BeforeValidator(number_as_text), AfterValidator(resolve_group)]
