"""The file that keeps subscriptions over restarts.

Law: at every moment there is a whole file or none: a new one is written beside it, brought to the disk, and renamed.
What cannot be read is set aside, and never stops a start.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, Final

from bccnd.gateways.broker_sessions import Record

#: what the file says it is
_FORMAT: Final = "bccnd-broker-1"
#: bytes of a file that is read: a million ids with a few subscriptions each; more is no file of ours
_MAX_SIZE: Final = 256 << 20
#: where services keep what outlives them
_SYSTEM: Final = "/var/lib/bccnd"


def dump(records: Iterable[Record]) -> bytes:
    """Records as the text of a file. Bytes are written as text, one character a byte."""
    ids = [
        {
            "id": record.name.decode("latin-1"),
            "seen": round(record.seen, 3),
            "topics": [topic.decode("latin-1") for topic in record.topics],
        }
        for record in records
    ]
    return json.dumps({"format": _FORMAT, "ids": ids}, separators=(",", ":")).encode("ascii") + b"\n"


def parse(text: bytes) -> list[Record]:
    """Records from the text of a file. Raises ValueError where it is none."""
    try:
        said: Any = json.loads(text)
        if said["format"] != _FORMAT:
            raise ValueError(f"it is no {_FORMAT}")
        return [
            Record(
                str(one["id"]).encode("latin-1"),
                float(one["seen"]),
                tuple(str(topic).encode("latin-1") for topic in one["topics"]),
            )
            for one in said["ids"]
        ]
    except (LookupError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"it is not written as it should be ({error!r})") from error


def name_for(tcp: tuple[str, int]) -> str:
    """What the file of a broker is called: none has that of another."""
    return f"broker-{tcp[0].replace(':', '_')}-{tcp[1]}.json"


def place(tcp: tuple[str, int], environment: Mapping[str, str]) -> str:
    """Where the file is if nobody says so: in the folder that systemd gives to a service, in that of the system, or in
    that of this user."""
    given = environment.get("STATE_DIRECTORY", "").partition(":")[0]
    if given:
        return os.path.join(given, name_for(tcp))
    with contextlib.suppress(OSError):
        os.makedirs(_SYSTEM, 0o750, exist_ok=True)
    if os.access(_SYSTEM, os.W_OK | os.X_OK):
        return os.path.join(_SYSTEM, name_for(tcp))
    own = environment.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(own, "bccnd", name_for(tcp))


def read(path: str) -> list[Record]:
    """The records of a file; none where there is no file. Raises OSError, ValueError."""
    try:
        with open(path, "rb") as file:
            text = file.read(_MAX_SIZE + 1)
    except FileNotFoundError:
        return []
    if len(text) > _MAX_SIZE:
        raise ValueError(f"it has more than {_MAX_SIZE} bytes")
    return parse(text)


def set_aside(path: str) -> str:
    """Rename a file that cannot be read; what it is called now. Raises OSError."""
    aside = f"{path}.damaged"
    os.replace(path, aside)
    return aside


def write(path: str, text: bytes) -> None:
    """Put a whole new file in the place of the old one. Raises OSError."""
    folder = os.path.dirname(path) or "."
    os.makedirs(folder, 0o750, exist_ok=True)
    beside = f"{path}.new"
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        out.write(text)
        out.flush()
        os.fsync(descriptor)
    os.replace(beside, path)
    folder_descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder_descriptor)
    finally:
        os.close(folder_descriptor)
