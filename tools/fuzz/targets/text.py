"""What people write: configuration files, and datagrams for `bccn trace`."""

from __future__ import annotations

import os
from typing import Final

from bccnd import config
from bccnd.cli.diagnosis import trace as command
from bccnd.core.wire import bccn1
from bccnd.errors import BadDatagram, ConfigError

_PATH: Final = "it.yaml"


def configuration(data: bytes) -> object:
    """A file: settings, or faults that each say where, what, and what to do about it."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    try:
        found = config.read(text, _PATH, resolve=False)
    except ConfigError as error:
        refused = error
    else:
        return found.settings.model_dump_json(exclude={"host"})
    assert refused.faults, "refused without a reason"
    for fault in refused.faults:
        assert fault.reason, fault
        assert fault.remedy, fault
    return str(refused)


def trace(data: bytes) -> object:
    """What was typed, or came from a file, as a datagram."""
    typed = os.fsencode(os.fsdecode(data))
    assert typed == data
    cut = command.without_newline(data)
    assert cut in (data, data[:-1])
    try:
        bccn1.split_envelope(cut)
        whole = True
    except BadDatagram:
        whole = False
    try:
        digits: bytes | None = command.read_hex(data)
    except ValueError:
        digits = None
    if digits is not None:
        assert command.read_hex(digits.hex().encode()) == digits
    return cut, whole, digits
