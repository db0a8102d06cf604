"""Generates docs/configuration.md from the schema of the configuration and from bccnd.yaml(5).

The manual page has the meaning of a key, and its default, which docs/defaults.py fills in; the schema has its type and
bounds; `RESTART_KEYS` says whether a reload applies it.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from bccnd.config import Settings
from bccnd.config.schema import RESTART_KEYS
from docs.manual import Part, Section, sections, wrapped

ROOT: Final = Path(__file__).parents[1]
MANUAL: Final = ROOT / "packaging/man/bccnd.yaml.5"

#: how a value is written, by the function that reads it
_READ_AS: Final = {
    "parse_duration": "duration",
    "parse_size": "size",
    "parse_mode": "file mode",
    "parse_address": "IP address",
    "parse_segment_address": "broadcast address or multicast group",
    "check_interface": "name of an interface",
    "parse_listen": "address:port, or off",
    "resolve_key": "file with a key",
    "resolve_public_key": "file with a public key",
    "check_prefix": "beginning of a src",
    "resolve_user": "name or number of a user",
    "resolve_group": "name or number of a group",
    "check_program": "name of a program, at most 15 bytes",
    "check_bus_address": "path, @name or /dev/fd/N",
    "check_link_url": "URL of a link",
    "check_dialled_url": "URL of a link",
    "check_host_name": "name or address of a host",
    "parse_payload_rules": "true, false, hash, or list of rules",
}
#: functions that do not change how a value is written
_NEUTRAL: Final = {"as_tuple", "check_text", "check_file", "number_as_text", "<lambda>"}
_HEAD: Final = "| key | default | meaning |\n| --- | --- | --- |"
#: kinds of values that a default or the meaning shows
_SEEN: Final = {
    *("whole number", "number", "text", "duration", "size", "true or false", "file mode", "IP address", "list: text"),
    *("name of an interface", "name or number of a user", "name or number of a group", "address:port, or off"),
    *("broadcast address or multicast group", "list: file with a key", "URL of a link", "mapping: text to text"),
    *("mapping: beginning of a src to list: file with a public key", "path, @name or /dev/fd/N"),
    *("list: URL of a link", "true, false, hash, or list of rules", "name or address of a host"),
}
#: what the manual page says of its own layout
_LAYOUT: Final = "Its default follows in parentheses; the installed file lists all keys. "
_PLAIN: Final = {int: "whole number", float: "number", bool: "true or false", str: "text"}
#: sections of the manual page without keys
_OTHERS: Final = {"Name", "Synopsis", "Description", "Files", "Examples", "See also"}
#: sections that services of their own read, and the service
_SERVICES: Final = {
    "recorder": "bccnd-recorder",
    "gateways.nng": "bccnd-nng",
    "gateways.broker": "bccnd-broker",
}


@dataclass(frozen=True)
class Key:
    """A key of the schema."""

    path: str
    type: str
    bounds: str
    required: bool
    #: None also where a function makes it
    default: Any


def keys(model: type[BaseModel] = Settings, path: str = "") -> Iterator[Key]:
    """Yield all keys of the schema; those of sections in lists like those of sections."""
    for name, field in model.model_fields.items():
        inner = next(_models(field.annotation), None)
        here = path + name
        listed = inner is not None and _is_list(field.annotation)
        if inner is None or listed:
            kind = _kind(field.annotation, field.metadata)
            yield Key(here, kind, _bounds(kind, field.metadata), field.is_required(), field.get_default())
        if inner is not None:
            yield from keys(inner, f"{here}.")


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _is_list(annotation: Any) -> bool:
    return get_origin(annotation) is tuple or any(map(_is_list, get_args(annotation)))


def _kind(annotation: Any, metadata: Any = ()) -> str:
    """Describe how values of a type are written."""
    for one in metadata:
        reader = getattr(getattr(one, "func", None), "__name__", None)
        if reader in _READ_AS:
            return _READ_AS[reader]
        if reader is not None and reader not in _NEUTRAL:
            raise ValueError(f"describe in _READ_AS how a value of {reader} is written")
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _kind(arguments[0], annotation.__metadata__)
    if origin is Literal:
        return "one of " + ", ".join(f"`{one}`" for one in arguments)
    if origin in (Union, types.UnionType):
        (kind,) = {_kind(one) for one in arguments if one is not type(None)}
        return kind
    if origin is tuple:
        return f"list: {_kind(arguments[0])}"
    if origin is dict:
        return f"mapping: {_kind(arguments[0])} to {_kind(arguments[1])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return ", ".join(f"`{name}`" for name in annotation.model_fields)
    return _PLAIN[annotation]


def _bounds(kind: str, metadata: Any) -> str:
    """Describe the bounds of a value; empty without any."""
    limits = {name: getattr(one, name) for one in metadata for name in ("ge", "gt", "le", "lt") if hasattr(one, name)}
    said = []
    for name, words in (("ge", "from {}"), ("gt", "above {}"), ("le", "to {}"), ("lt", "below {}")):
        if name in limits:
            said.append(words.format(_amount(limits[name], kind)))
    for one in metadata:
        if hasattr(one, "max_length"):
            unit = "entries" if kind.startswith(("list", "mapping", "true, false, hash")) else "characters"
            said.append(f"at most {one.max_length:,} {unit}")
    return " ".join(said)


def _amount(value: float, kind: str) -> str:
    if kind == "size":
        for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
            if value and not value % (1 << shift):
                return f"{int(value) >> shift} {unit}"
        return f"{value:,.12g} bytes"
    if kind == "duration":
        return f"{value:g} s" if value < 3600 else f"{value / 3600:g} h"
    return f"{value:,.12g}"


def in_words(default: str) -> bool:
    """Whether the manual page describes a default, instead of giving it as it is written in the file."""
    return " " in default or default in ("none", "empty")


def _default(part: Part, key: Key) -> str:
    if key.required:
        return "none (required)"
    said = part.default or ""
    return said if in_words(said) else f"`{said}`"


def _values(key: Key, told: str) -> str:
    """Describe what a key may be, as far as its meaning does not tell it."""
    known = told.replace(" ", "").replace(",", "").replace("`", "")
    bounds = key.bounds.removeprefix("from ").removeprefix("at most ").replace("one of ", "")
    kind = key.type.removeprefix("one of ")
    if key.type.startswith("one of ") and all(one.strip("` ") in known for one in kind.split(",")):
        kind = ""
    if kind.startswith("list: `") or kind in _SEEN:
        kind = ""
    said = bounds.replace(" ", "").replace(",", "").removesuffix("entries").removesuffix("characters")
    return ", ".join(filter(None, (kind, "" if said in known else key.bounds)))


def _row(part: Part, key: Key) -> str:
    """Describe a key in a row of its section's table."""
    text = " ".join(part.paragraphs).replace(r" \[restart\]", "")
    values = _values(key, text)
    cells = (f"`{key.path}`", _default(part, key), text + (f" ({values})" if values else ""))
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _section(section: Section, known: dict[str, Key]) -> Iterator[str]:
    yield f"## {section.title}"
    for part in section.parts:
        if not part.name:
            yield from map(wrapped, part.paragraphs)
    rows = [_row(part, known[name]) for part in section.parts for name in filter(None, part.name.split(" , "))]
    if rows:
        yield "\n".join((_HEAD, *rows))


def _effects() -> Iterator[str]:
    """Yield the paragraphs about when a change takes effect."""
    yield "A changed file takes effect:"
    waiting = ", ".join(f"`{key}`" for key in sorted(RESTART_KEYS))
    services = "; ".join(f"`{section}`: `systemctl restart {name}`" for section, name in _SERVICES.items())
    yield "\n".join(
        wrapped(item).replace("\n", "\n  ")
        for item in (
            f"- with `systemctl restart bccnd`, which keeps clients connected: {waiting}, and every key below them;",
            f"- with a restart of their own service: {services}. Without systemd, a reload restarts gateways;",
            "- with `systemctl reload bccnd` (or `SIGHUP`): all other keys.",
        )
    )


def page(manual: str) -> str:
    """Generate the document from the text of the manual page."""
    found = sections(manual)
    (about,) = [section for section in found if section.title == "Description"]
    (examples,) = [section for section in found if section.title == "Examples"]
    known = {key.path: key for key in keys()}
    told = ["# Configuration reference"]
    for part in about.parts:
        told += [wrapped(text.replace(_LAYOUT, "")) for text in part.paragraphs if r"\[restart\]" not in text]
    told += _effects()
    told.append(
        wrapped(
            "This page has the text of the manual page `man bccnd.yaml`. The installed file, "
            "[etc/bccnd.yaml](../etc/bccnd.yaml), explains some keys further. [Examples](#examples) are at the end."
        )
    )
    for section in found:
        if section.title not in _OTHERS:
            told += _section(section, known)
    told += _section(examples, known)
    return "\n\n".join(told) + "\n"
