"""Generates docs/configuration.md from the schema of the configuration and from bccnd.yaml(5).

Only the example of a key is written here. The manual page has its meaning, and its default, which docs/defaults.py
fills in; the schema has its type and bounds; `RESTART_KEYS` says whether a reload applies it.
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
_PLAIN: Final = {int: "whole number", float: "number", bool: "true or false", str: "text"}
#: sections of the manual page without keys
_OTHERS: Final = {"Name", "Synopsis", "Description", "Files", "Examples", "See also"}
_RELOAD: Final = "with `systemctl reload bccnd` (or `SIGHUP`)"
_RESTART: Final = "with `systemctl restart bccnd`; clients stay connected"
_SERVICES: Final = {
    "gateways.nng": "with `systemctl restart bccnd-nng`; without systemd with a reload",
    "gateways.broker": "with `systemctl restart bccnd-broker`; without systemd with a reload",
    "recorder": "with `systemctl restart bccnd-recorder`",
}
_LINK: Final = 'gateways: {nng: {dial: ["tls+tcp://bridge2:5402"], tls: {ca: ca.pem, certificate: c.pem, key: c.key'
#: a file that sets the key to another value than its default
EXAMPLES: Final = {
    "host": "host: relay01",
    "names": "names: perl-safe",
    "max_datagram": "max_datagram: 9000",
    "segments": "segments: [{interface: eth0}, {interface: eth1, port: 5500}]",
    "segments.name": "segments: [{name: plant}]",
    "segments.address": "segments: [{address: 10.9.0.255}]",
    "segments.port": "segments: [{port: 5500}]",
    "segments.bind": "segments: [{address: 239.1.2.3, bind: 0.0.0.0}]",
    "segments.interface": "segments: [{interface: eth0}]",
    "segments.hop_limit": "segments: [{address: 239.1.2.3, hop_limit: 4}]",
    "segments.receive_buffer": "segments: [{receive_buffer: 128MiB}]",
    "integrity.algorithm": "integrity: {algorithm: crc32}",
    "integrity.keys": "integrity: {algorithm: hmac, keys: [/etc/bccnd/keys/new.key, /etc/bccnd/keys/old.key]}",
    "integrity.signers": "integrity: {algorithm: sig, signers: {relay01: [/etc/bccnd/keys/relay01.pub]}}",
    "integrity.required": "integrity: {algorithm: hmac, keys: [/etc/bccnd/keys/hmac.key], required: false}",
    "integrity.unverifiable": "integrity: {algorithm: hmac, keys: [/etc/bccnd/keys/hmac.key], unverifiable: accept}",
    "dedup.sanity": "dedup: {sanity: 8192}",
    "dedup.horizon": "dedup: {horizon: 500ms}",
    "dedup.late": "dedup: {late: deliver}",
    "dedup.freshness": "dedup: {freshness: monotonic}",
    "dedup.expire": "dedup: {expire: 7d}",
    "dedup.max_sources": "dedup: {max_sources: 10000}",
    "dedup.linked": "dedup: {linked: true}",
    "bus.path": 'bus: {path: "@bccn"}',
    "bus.mode": 'bus: {mode: "0666"}',
    "bus.group": "bus: {group: bccn}",
    "bus.dialect": "bus: {dialect: sbus}",
    "bus.sockets": "bus: {sockets: [{path: /run/bccnd/dotted.sock, dialect: sbus-dot}]}",
    "bus.sockets.path": 'bus: {sockets: [{path: "@dotted", dialect: sbus-dot}]}',
    "bus.sockets.mode": 'bus: {sockets: [{path: /run/bccnd/all.sock, mode: "0666"}]}',
    "bus.sockets.group": "bus: {sockets: [{path: /run/bccnd/operators.sock, group: operators}]}",
    "bus.sockets.dialect": "bus: {sockets: [{path: /run/bccnd/dotted.sock, dialect: sbus-dot}]}",
    "bus.queue.messages": "bus: {queue: {messages: 10000}}",
    "bus.queue.bytes": "bus: {queue: {bytes: 16MiB}}",
    "bus.max_clients": "bus: {max_clients: 200}",
    "bus.max_subscriptions": "bus: {max_subscriptions: 100}",
    "bus.user.clients": "bus: {user: {clients: 100}}",
    "bus.user.subscriptions": "bus: {user: {subscriptions: 1000}}",
    "bus.user.wildcards": "bus: {user: {wildcards: 500}}",
    "bus.user.queue_bytes": "bus: {user: {queue_bytes: 16MiB}}",
    "bus.user.rate": "bus: {user: {rate: 500}}",
    "bus.patience": "bus: {patience: 500ms}",
    "metrics.listen": 'metrics: {listen: "[::1]:9540"}',
    "metrics.hosts": "metrics: {hosts: [relay01.example.org]}",
    "metrics.groups": 'metrics: {groups: {alarms: "alarm/>"}}',
    "heartbeat.interval": "heartbeat: {interval: 5s}",
    "heartbeat.dead_after": "heartbeat: {interval: 5s, dead_after: 5}",
    "reports.interval": "reports: {interval: 30s}",
    "reports.max_hosts": "reports: {max_hosts: 200}",
    "repeat": 'repeat: [{channels: "alarm/>"}, {channels: "!", copies: 3}]',
    "repeat.channels": 'repeat: [{channels: "alarm/>"}]',
    "repeat.copies": 'repeat: [{channels: "alarm/>", copies: 3}]',
    "repeat.spacing": 'repeat: [{channels: "alarm/>", spacing: 20ms}]',
    "access": 'access: [{group: operators, publish: [""], tap: true}, {publish: ["log/"]}]',
    "access.user": 'access: [{user: cardsys, publish: ["cardsys/"]}]',
    "access.group": 'access: [{group: operators, publish: [""]}]',
    "access.program": 'access: [{user: cardsys, program: cardsys-relay, publish: ["cardsys/"]}]',
    "access.publish": 'access: [{publish: ["log/", "!relay01/"]}]',
    "access.subscribe": 'access: [{subscribe: ["news/", "!/bccn/"]}]',
    "access.tap": "access: [{user: auditor, tap: true}]",
    "access.tag": "access: [{tag: false}]",
    "access.link": "access: [{user: bridge, link: true}]",
    "recorder.journal": "recorder: {journal: /srv/journal}",
    "recorder.host": "recorder: {host: relay01}",
    "recorder.spool": "recorder: {spool: /var/lib/bccnd/spool}",
    "recorder.spool_size": "recorder: {spool_size: 4GiB}",
    "recorder.rotate": "recorder: {rotate: 60s}",
    "recorder.rotate_size": "recorder: {rotate_size: 16MiB}",
    "recorder.keep.age": "recorder: {keep: {age: 30d}}",
    "recorder.keep.size": "recorder: {keep: {size: 10GiB}}",
    "recorder.payload": "recorder: {payload: hash}",
    "recorder.payload.channels": 'recorder: {payload: [{channels: "door/>", payload: hash}]}',
    "recorder.payload.payload": 'recorder: {payload: [{channels: "door/>", payload: hash}, {payload: omit}]}',
    "recorder.metrics.listen": "recorder: {metrics: {listen: 127.0.0.1:9541}}",
    "gateways.nng.listen": f"{_LINK.replace('dial', 'listen').replace('bridge2', '0.0.0.0')}}}}}}}",
    "gateways.nng.dial": f"{_LINK}}}}}}}",
    "gateways.nng.tls.ca": f"{_LINK}}}}}}}",
    "gateways.nng.tls.certificate": f"{_LINK}}}}}}}",
    "gateways.nng.tls.key": f"{_LINK}}}}}}}",
    "gateways.nng.tls.server_name": f"{_LINK}, server_name: bridges}}}}}}",
    "gateways.nng.tls.require": f"{_LINK}, require: listener}}}}}}",
    "gateways.nng.send": 'gateways: {nng: {dial: ["tcp://10.9.0.2:5402"], send: ["cardsys/", "heartbeat/"]}}',
    "gateways.nng.receive": 'gateways: {nng: {dial: ["tcp://10.9.0.2:5402"], receive: ["weather/>"]}}',
    "gateways.nng.nameless": 'gateways: {nng: {dial: ["tcp://10.9.0.2:5402"], nameless: true}}',
    "gateways.nng.max_peers": 'gateways: {nng: {listen: ["tcp://127.0.0.1:5402"], max_peers: 16}}',
    "gateways.nng.queue": 'gateways: {nng: {dial: ["tcp://10.9.0.2:5402"], queue: 8192}}',
    "gateways.broker.tcp": "gateways: {broker: {tcp: 127.0.0.1:5401}}",
    "gateways.broker.udp": "gateways: {broker: {tcp: 127.0.0.1:5401, udp: 127.0.0.1:5401}}",
    "gateways.broker.broadcast": "gateways: {broker: {tcp: 127.0.0.1:5401, broadcast: true}}",
    "gateways.broker.broadcast_strangers": (
        "gateways: {broker: {udp: 0.0.0.0:5401, broadcast: true, broadcast_strangers: true}}"
    ),
    "gateways.broker.state": "gateways: {broker: {tcp: 127.0.0.1:5401, state: /var/lib/bccnd-broker/ids.db}}",
    "gateways.broker.max_connections": "gateways: {broker: {tcp: 127.0.0.1:5401, max_connections: 64}}",
    "gateways.broker.max_ids": "gateways: {broker: {tcp: 127.0.0.1:5401, max_ids: 100}}",
    "gateways.broker.max_subscriptions": "gateways: {broker: {tcp: 127.0.0.1:5401, max_subscriptions: 16}}",
    "gateways.broker.queue": "gateways: {broker: {tcp: 127.0.0.1:5401, queue: 4MiB}}",
    "gateways.broker.expire": "gateways: {broker: {tcp: 127.0.0.1:5401, expire: 30d}}",
    "gateways.broker.hello": "gateways: {broker: {tcp: 127.0.0.1:5401, hello: 2s}}",
    "gateways.broker.idle": "gateways: {broker: {tcp: 127.0.0.1:5401, idle: 1h}}",
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


def effect(path: str) -> str:
    """Describe when a change of a key takes effect."""
    if any(path == waiting or path.startswith(f"{waiting}.") for waiting in RESTART_KEYS):
        return _RESTART
    return next((how for section, how in _SERVICES.items() if path.startswith(f"{section}.")), _RELOAD)


def in_words(default: str) -> bool:
    """Whether the manual page describes a default, instead of giving it as it is written in the file."""
    return " " in default or default in ("none", "empty")


def _default(part: Part, key: Key) -> str:
    if key.required:
        return "none (required)"
    said = part.default or ""
    return said if in_words(said) else f"`{said}`"


def _told(part: Part, key: Key) -> Iterator[str]:
    """Yield the paragraphs about a key."""
    yield f"### `{key.path}`"
    for paragraph in part.paragraphs:
        yield wrapped(paragraph.replace(r" \[restart\]", ""))
    yield "\n".join(
        (
            f"- Value: {key.type}{', ' * bool(key.bounds)}{key.bounds}",
            f"- Default: {_default(part, key)}",
            f"- A change takes effect: {effect(key.path)}",
        )
    )
    yield f"```yaml\n{EXAMPLES[key.path]}\n```"


def _section(section: Section, known: dict[str, Key]) -> Iterator[str]:
    yield f"## {section.title}"
    for part in section.parts:
        if not part.name:
            yield from map(wrapped, part.paragraphs)
        for name in filter(None, part.name.split(" , ")):
            yield from _told(part, known[name])


def _said_here(text: str) -> str:
    """Adapt what the manual page says of its own layout."""
    for there, here in (
        ("Its default follows in parentheses; the installed file", "The installed file"),
        (r"Keys marked \[restart\]", "Keys marked so below"),
    ):
        text = text.replace(there, here)
    return text


def page(manual: str) -> str:
    """Generate the document from the text of the manual page."""
    found = sections(manual)
    (about,) = [section for section in found if section.title == "Description"]
    (examples,) = [section for section in found if section.title == "Examples"]
    known = {key.path: key for key in keys()}
    told = ["# Configuration reference"]
    for part in about.parts:
        told += [wrapped(_said_here(text)) for text in part.paragraphs]
    told += [
        wrapped(
            "This page has the same text as the manual page `man bccnd.yaml`. The installed file, "
            "[etc/bccnd.yaml](../etc/bccnd.yaml), explains some keys further in its comments. Each example below is a "
            "complete file; [longer examples](#examples) are at the end."
        )
    ]
    for section in found:
        if section.title not in _OTHERS:
            told += _section(section, known)
    told += _section(examples, known)
    return "\n\n".join(told) + "\n"
