"""Loads the configuration file: all of it is valid, or it is refused with all its faults at once."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from bccnd.config.document import Document
from bccnd.config.faults import config_error
from bccnd.config.recorder_schema import RecorderSettings
from bccnd.config.schema import Settings
from bccnd.config.users_and_keys import References
from bccnd.core.formats.bus_address import is_descriptor_path
from bccnd.errors import ConfigError, Fault
from bccnd.paths import DEFAULT_PATH


@dataclass(frozen=True)
class Configuration:
    """Settings with what they refer to: the bytes of keys, the numbers of users and groups."""

    settings: Settings
    keys: tuple[bytes, ...] = ()
    signers: dict[bytes, list[bytes]] = field(default_factory=dict)
    uids: dict[str, int] = field(default_factory=dict)
    gids: dict[str, int] = field(default_factory=dict)


def load(path: str | None, *, resolve: bool = True, shared: bool = False) -> Configuration:
    """Load a file; without a path the default file if it exists, else the defaults. Raises ConfigError.

    Programs other than the daemon do not ``resolve`` references: they may not read its keys. A daemon that starts its
    gateways itself has a ``shared`` file: each of them reads it, too.
    """
    if path is None:
        if not os.path.exists(DEFAULT_PATH):
            return read("", DEFAULT_PATH)
        path = DEFAULT_PATH
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        remedy = (
            "name an existing file with --config" if not os.path.exists(path) else "make it readable for the daemon"
        )
        raise ConfigError([Fault(path, 0, "", f"cannot read it: {error.strerror}", remedy)]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([Fault(path, 0, "", f"not UTF-8 at byte {error.start}", "save it as UTF-8")]) from error
    configuration = read(text, path, resolve=resolve)
    if shared and configuration.settings.gateways.configured and (is_descriptor_path(path) or not os.path.isfile(path)):
        reason = "it is a descriptor or a pipe, where the gateways, which read this file too, find another one or none"
        raise ConfigError([Fault(path, 0, "gateways", reason, "name a file with --config, or use --no-gateways")])
    return configuration


def read(text: str, path: str, *, resolve: bool = True) -> Configuration:
    """Read a configuration from text; faults name ``path``, and relative file names begin at its folder."""
    document = Document(text, path)
    references = References(os.path.dirname(path))
    try:
        settings = Settings.model_validate(document.data, context=references if resolve else None)
    except ValidationError as error:
        raise config_error(document, error) from error
    if not settings.host.isascii():
        _check_usual_host(settings.host, path)
    signers = {
        os.fsencode(prefix): [references.public_keys[name] for name in names]
        for prefix, names in settings.integrity.signers.items()
        if resolve
    }
    return Configuration(settings, tuple(references.keys), signers, references.uids, references.gids)


def _check_usual_host(host: str, path: str) -> None:
    """Check the name of this host, which is used where the file has none. Raises ConfigError."""
    try:
        host.encode()
    except UnicodeEncodeError as error:
        reason = f"the name of this host, {os.fsencode(host)!r}, is not UTF-8"
        remedy = "set host: to a name on the segment, or rename the host (hostnamectl)"
        raise ConfigError([Fault(path, 0, "host", reason, remedy)]) from error


def read_recorder(settings: RecorderSettings, options: dict[str, object]) -> RecorderSettings:
    """Replace settings of the recorder by options of a command line. Raises ConfigError, which names the options."""
    try:
        payload = options.pop("payload", None)
        rules: dict[str, object] = {} if payload is None else {"payload": [{"payload": payload}]}
        return RecorderSettings.model_validate({**settings.model_dump(), "metrics": {}, **options, **rules}).model_copy(
            update={"metrics": settings.metrics}
        )
    except ValidationError as error:
        raise config_error(Document("", "command line"), error) from error
