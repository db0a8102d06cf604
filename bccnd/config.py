"""The configuration file as frozen settings.

Law: a file is either wholly good or refused with all its faults at once, each with file, line, path, reason and
remedy; what it names (keys, a group) is resolved here too, so that nothing is found out after the start. Every
limit stands here with its default and its reason.
"""

from __future__ import annotations

import difflib
import grp
import ipaddress
import os
import pwd
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Final, Literal, get_args

# Plugins of pydantic that happen to be installed are none of ours, and looking for them takes time and memory.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from bccnd.client.keys import passed_key, read_key, read_public_key
from bccnd.core.address import read_address
from bccnd.core.bccn1 import MAX_RECEIVE, MAX_SEND, MAX_UDP, check_src
from bccnd.core.frames import DEFAULT_SOCKET, LINKS
from bccnd.document import Document
from bccnd.errors import BadAddress, BadDatagram, BadKey, ConfigError, Fault
from bccnd.paths import DEFAULT_PATH, KEY_FOLDER

_RESTART: Final = "'systemctl restart bccnd' (clients stay connected)"

_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
#: a thousand years
_MAX_SECONDS: Final = 3.2e10
_SIZE: Final = re.compile(r"([0-9]{1,12})(B|KiB|MiB|GiB)")
_BYTES: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
#: bytes of a program's name that the kernel keeps
MAX_COMM: Final = 15
#: seconds between heartbeats at least: a fleet's heartbeats must not be its traffic
MIN_BEAT: Final = 0.1


def _wrong(reason: str, remedy: str) -> PydanticCustomError:
    """A fault with a remedy of its own."""
    return PydanticCustomError("bccnd", "{reason}", {"reason": reason, "remedy": remedy})


def _brief(value: object) -> str:
    """A value from the file for a message: not too long, in YAML's words."""
    if value is None:
        return "nothing"
    try:
        text = repr(value)
    except ValueError:  # Python refuses to write numbers of thousands of digits
        return "a number with too many digits"
    return text if len(text) <= 60 else text[:57] + "..."


def _text(value: str) -> str:
    """Refuse text that no name, path or pattern can hold."""
    if not value.isprintable():
        raise _wrong(f"{_brief(value)} holds characters that cannot be printed", "write plain text")
    return value


def _seconds(value: object) -> float:
    """Read a duration: a number of seconds, or ``200ms``, ``5s``, ``10m``, ``24h``, ``7d``."""
    seconds = -1.0
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MAX_SECONDS:
        seconds = float(value)
    elif isinstance(value, str) and (found := _DURATION.fullmatch(value)):
        seconds = float(found[1]) * _SECONDS[found[2]]
    if not 0 <= seconds <= _MAX_SECONDS:
        raise _wrong(f"{_brief(value)} is no duration", "write a number of seconds, or a number with ms, s, m, h or d")
    return seconds


def _bytes(value: object) -> int:
    """Read a size: a number of bytes, or ``64KiB``, ``4MiB``, ``1GiB``."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    found = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise _wrong(f"{_brief(value)} is no size", "write a number of bytes, or a whole number with KiB, MiB or GiB")
    return int(found[1]) * _BYTES[found[2]]


def _mode(value: object) -> int:
    """Read a file mode. YAML reads an unquoted 0660 as the octal number it means."""
    mode = -1
    if isinstance(value, str) and re.fullmatch(r"0?[0-7]{3}", value):
        mode = int(value, 8)
    elif isinstance(value, int) and not isinstance(value, bool):
        mode = value
    if not 0 <= mode <= 0o777 or mode & 0o600 != 0o600:
        raise _wrong(
            f"{_brief(value)} is no mode for a socket", 'write it as "0660": at least read and write for the owner'
        )
    return mode


def _address(value: object) -> str:
    try:
        return str(ipaddress.ip_address(value if isinstance(value, str) else ""))
    except ValueError:
        remedy = "write an IPv4 address like 255.255.255.255, or an IPv6 address like ff02::bcc"
        raise _wrong(f"{_brief(value)} is no address", remedy) from None


def _segment_address(value: object) -> str:
    address = _address(value)
    if ":" in address and ("%" in address or not ipaddress.ip_address(address).is_multicast):
        raise _wrong(
            f"{address} is no multicast group, and IPv6 has no broadcast",
            "write a group like ff02::bcc, and its interface under 'interface'",
        )
    return address


def _interface(value: str) -> str:
    """The kernel takes names of up to 15 bytes."""
    if not re.fullmatch(r"[!-.0-~]{1,15}", value):
        raise _wrong(f"{_brief(value)} is no name of an interface", "write one that 'ip link' shows, like eth0")
    return value


def _listen(value: object) -> tuple[str, int] | None:
    """Read ``host:port`` or ``[host]:port``; ``off`` (which YAML reads as false) is None."""
    if value is None or value is False or value in ("off", ""):
        return None
    host, _, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    host = host.removeprefix("[").removesuffix("]")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        host = ""
    if not host or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65_535:
        raise _wrong(f"{_brief(value)} is no address to listen on", "write address:port, like 127.0.0.1:9540, or off")
    return host, int(port)


class _Found:
    """What the settings name, found while they are validated: the bytes of keys, the numbers of users and groups."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.keys: list[bytes] = []
        self.public_keys: dict[str, bytes] = {}
        self.uids: dict[str, int] = {}
        self.gids: dict[str, int] = {}

    def path(self, name: str) -> str:
        """A name without ``/`` at its beginning counts from the folder of the configuration."""
        return os.path.join(self.directory, name)


def _key_in(read: Callable[[str], bytes], path: str) -> bytes:
    """The key at a path, or as systemd has passed it to a service that cannot look there."""
    passed = passed_key(path)
    try:
        return read(passed or path)
    except BadKey as bad:
        detail, remedy = bad.detail, bad.remedy
        if passed is not None:
            detail = detail.replace(passed, f"{path}, as systemd has passed it,")
            remedy = f"{remedy.replace(passed, path)}; then {_RESTART}"
        elif isinstance(bad.__cause__, OSError) and os.environ.get("CREDENTIALS_DIRECTORY"):
            name = os.path.basename(path)
            remedy = f"systemd passes keys at the start only: put {name} into {KEY_FOLDER} and {_RESTART}"
        raise _wrong(detail, remedy) from bad


def _key_file(name: str, info: ValidationInfo) -> str:
    if isinstance(info.context, _Found):
        read = partial(read_key, algorithm=info.data.get("algorithm", "hmac"))
        info.context.keys.append(_key_in(read, info.context.path(name)))
    return name


def _public_key_file(name: str, info: ValidationInfo) -> str:
    if isinstance(info.context, _Found):
        info.context.public_keys[name] = _key_in(read_public_key, info.context.path(name))
    return name


def _prefix(prefix: str) -> str:
    if prefix:
        try:
            check_src(os.fsencode(prefix))
        except BadDatagram:
            remedy = 'write the first part of a src, like relay01 or relay01/cardsys, or "" for all others'
            raise _wrong(f"{_brief(prefix)} cannot be the beginning of a src", remedy) from None
    return prefix


def _id(digits: str) -> int:
    """The number of a user or group; the largest one stands for none."""
    if not digits.isascii() or len(digits) > 10 or int(digits) >= (1 << 32) - 1:
        raise _wrong(f"{_brief(digits)} is no number of a user or group", "write a number below 4294967295, or a name")
    return int(digits)


def _user(name: str, info: ValidationInfo) -> str:
    if isinstance(info.context, _Found):
        try:
            info.context.uids[name] = _id(name) if name.isdigit() else pwd.getpwnam(name).pw_uid
        except KeyError:
            raise _wrong(f"there is no user {name}", f"create it (useradd --system {name}), or leave it out") from None
    return name


def _group(name: str, info: ValidationInfo) -> str:
    if isinstance(info.context, _Found):
        try:
            info.context.gids[name] = _id(name) if name.isdigit() else grp.getgrnam(name).gr_gid
        except KeyError:
            remedy = f"create it (groupadd --system {name}), or leave it out"
            raise _wrong(f"there is no group {name}", remedy) from None
    return name


def _number_as_text(value: object) -> object:
    """Users and groups may be given by number."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 32 else value


def _program(name: str) -> str:
    if len(name.encode()) > MAX_COMM:
        known = name.encode()[:MAX_COMM].decode(errors="replace")
        raise _wrong(
            f"the kernel knows programs by {MAX_COMM} characters at most, and {_brief(name)} has more",
            f"write {known}, or what 'bccn clients' shows",
        )
    return name


def _bus_address(text: str) -> str:
    try:
        read_address(text)
    except BadAddress as bad:
        raise _wrong(bad.detail, "write a path like /run/bccnd/bus.sock, @name, or /dev/fd/3") from None
    return text


def _as_tuple(value: object) -> object:
    """YAML's lists, frozen; nothing at all is an empty one."""
    if value is None or value == {}:
        return ()
    return tuple(value) if isinstance(value, list) else value


Text = Annotated[str, AfterValidator(_text)]
Seconds = Annotated[float, BeforeValidator(_seconds)]
Bytes = Annotated[int, BeforeValidator(_bytes)]
Mode = Annotated[int, BeforeValidator(_mode)]
Address = Annotated[str, BeforeValidator(_address)]
SegmentAddress = Annotated[str, BeforeValidator(_segment_address)]
Interface = Annotated[str, AfterValidator(_interface)]
Listen = Annotated[tuple[str, int] | None, BeforeValidator(_listen)]
KeyFile = Annotated[Text, AfterValidator(_key_file)]
PublicKeyFile = Annotated[Text, AfterValidator(_public_key_file)]
Prefix = Annotated[Text, AfterValidator(_prefix)]
User = Annotated[Text, BeforeValidator(_number_as_text), AfterValidator(_user)]
Group = Annotated[Text, BeforeValidator(_number_as_text), AfterValidator(_group)]
Program = Annotated[Text, AfterValidator(_program)]
BusAddress = Annotated[Text, AfterValidator(_bus_address)]
Patterns = Annotated[tuple[Text, ...], BeforeValidator(_as_tuple)]


class _Section(BaseModel):
    # The schema is built once, at the first validation, and not for each section when this is imported; so defaults
    # are made without validation, too.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_default=False, defer_build=True)


class SegmentSettings(_Section):
    """One broadcast domain."""

    #: in metrics and logs; without it, made of interface, address and port
    name: Text = Field(default="", max_length=64)
    #: a broadcast address, or a multicast group in IPv4 or IPv6
    address: SegmentAddress = "255.255.255.255"
    port: int = Field(default=5400, ge=1, le=65_535)
    bind: Address | None = None
    interface: Interface | None = None
    #: routers that multicast may pass; 1 stays on the segment
    hop_limit: int = Field(default=1, ge=1, le=255)
    #: a burst of 100,000 datagrams of 150 bytes and half as many again: the kernel charges 832 bytes for each, against
    #: twice this number. It is not taken up unless a burst needs it.
    receive_buffer: Bytes = Field(default=64 << 20, ge=4096, le=1 << 30)

    @property
    def label(self) -> str:
        """What it is called: its name, or one made of the rest. It holds no ``:``, which ends it in the tap."""
        made = f"{self.interface + '/' if self.interface else ''}{self.address}#{self.port}"
        return self.name or made.replace(":", "-").replace("|", "-")

    @field_validator("name")
    @classmethod
    def _fits_in_the_tap(cls, name: str) -> str:
        if set(name) & set(":|"):
            raise _wrong(f"{_brief(name)} holds : or |, which end a name in the tap", "use other characters")
        return name

    @field_validator("bind")
    @classmethod
    def _same_family(cls, bind: str | None, info: ValidationInfo) -> str | None:
        address = info.data.get("address")
        if bind is not None and address is not None and (":" in bind) != (":" in address):
            raise _wrong(f"{bind} and {address} are of different families", "leave out 'bind'")
        return bind


class IntegritySettings(_Section):
    """Which checks datagrams carry."""

    algorithm: Literal["none", "hmac", "crc32", "sig"] = "none"
    #: the first signs; for hmac all of them verify: few, because each unknown sum is tried against all
    keys: Annotated[tuple[KeyFile, ...], BeforeValidator(_as_tuple)] = Field(default=(), max_length=16)
    #: public keys by the beginning of the src that they speak for; for a rotation a source has two
    signers: dict[Prefix, Annotated[tuple[PublicKeyFile, ...], BeforeValidator(_as_tuple), Field(min_length=1)]] = (
        Field(default_factory=dict, max_length=100_000)
    )
    #: drop what carries no check; without an algorithm there is nothing to require
    required: bool = True
    unverifiable: Literal["drop", "accept"] = "drop"

    @model_validator(mode="after")
    def _has_keys(self) -> IntegritySettings:
        if self.algorithm == "hmac" and not self.keys:
            raise _wrong("hmac needs a key", "make one with 'bccn keygen FILE' and name the file under keys")
        if self.algorithm == "sig" and not self.keys and not self.signers:
            remedy = "make a pair with 'bccn keygen --algorithm sig FILE'; name FILE under keys, FILE.pub under signers"
            raise _wrong("sig needs a key", remedy)
        if self.algorithm == "sig" and len(self.keys) > 1:
            raise _wrong("sig signs with one key", "leave one under keys; public keys stand under signers")
        if self.algorithm in ("none", "crc32") and self.keys:
            raise _wrong(f"algorithm {self.algorithm} takes no keys", "set algorithm: hmac or sig, or leave out keys")
        if self.algorithm != "sig" and self.signers:
            raise _wrong(f"algorithm {self.algorithm} takes no signers", "set algorithm: sig, or leave out signers")
        return self


class DedupSettings(_Section):
    """What counts as a copy, a restart, a loss."""

    #: below 16 every reordering would be a restart; above 65536 a tracker would cost 8 KB and more
    sanity: int = Field(default=1024, ge=16, le=65_536)
    horizon: Seconds = Field(default=2.0, gt=0, le=3600)
    late: Literal["drop", "deliver"] = "drop"
    freshness: Literal["restart", "monotonic"] = "restart"
    expire: Seconds = Field(default=86_400.0, gt=0)
    #: 100,000 trackers take some 55 MB at most (python -m tests.bench.trackers)
    max_sources: int = Field(default=100_000, ge=1, le=10_000_000)
    linked: bool = False

    @model_validator(mode="after")
    def _no_replay(self) -> DedupSettings:
        if self.late == "deliver" and self.freshness == "monotonic":
            contradiction = "late: deliver and freshness: monotonic contradict each other"
            raise _wrong(contradiction, "monotonic takes no backward step at all: set late: drop")
        return self


class QueueSettings(_Section):
    """What may wait for one client that does not read."""

    messages: int = Field(default=1024, ge=1, le=1_000_000)
    bytes: Bytes = Field(default=4 << 20, ge=4096, le=1 << 30)


class SocketSettings(_Section):
    """A socket that local programs connect to, and the dialect that is spoken behind it."""

    path: BusAddress = Field(min_length=1)
    mode: Mode = 0o660
    group: Group | None = None
    dialect: Literal["path", "sbus", "sbus-dot", "broker"] = "path"


class UserSettings(_Section):
    """What all clients of one user together may take up."""

    #: three quarters of bus.max_clients: no user can shut out the others
    clients: int = Field(default=750, ge=1, le=100_000)
    #: and as many KiB of memory for them
    subscriptions: int = Field(default=65_536, ge=1, le=10_000_000)
    queue_bytes: Bytes = Field(default=64 << 20, ge=4096, le=1 << 34)
    #: messages a second; 0 is as fast as can be
    rate: float = Field(default=0, ge=0, le=1e9)

    @field_validator("rate")
    @classmethod
    def _not_too_seldom(cls, rate: float) -> float:
        if 0 < rate < 0.001:
            raise _wrong(f"{rate:g} messages a second are too few", "set 0.001 or more, or 0 for as fast as can be")
        return rate


class BusSettings(SocketSettings):
    """The local bus: its first socket, perhaps more of them, and what clients may take up on all of them together."""

    path: BusAddress = Field(default=DEFAULT_SOCKET, min_length=1)
    #: each with its own path, mode, group and dialect
    sockets: Annotated[tuple[SocketSettings, ...], BeforeValidator(_as_tuple)] = Field(default=(), max_length=16)
    queue: QueueSettings = QueueSettings.model_construct()
    #: each client takes a descriptor; the usual limit of a service is 1024 soft, 524288 hard
    max_clients: int = Field(default=1000, ge=1, le=100_000)
    #: per client: some 400 bytes for each level that no other pattern has
    max_subscriptions: int = Field(default=4096, ge=1, le=1_000_000)
    user: UserSettings = UserSettings.model_construct()
    #: long enough for a program that is paused by garbage collection, short enough that nobody is stuck
    patience: Seconds = Field(default=5.0, le=3600)

    @property
    def all_sockets(self) -> tuple[SocketSettings, ...]:
        return (self, *self.sockets)

    @model_validator(mode="after")
    def _each_once(self) -> BusSettings:
        places = [read_address(one.path) for one in self.all_sockets]
        for one, place in zip(self.all_sockets, places, strict=True):
            if places.count(place) > 1:
                raise _wrong(f"two sockets at {one.path}", "give each a path of its own")
        return self


class AccessSettings(_Section):
    """A rule: whom it fits, and what they may. What it does not name it does not speak of."""

    user: User | None = None
    group: Group | None = None
    program: Program | None = Field(default=None, min_length=1)
    publish: Patterns | None = Field(default=None, max_length=1000)
    subscribe: Patterns | None = Field(default=None, max_length=1000)
    tap: bool | None = None
    tag: bool | None = None
    link: bool | None = None


class MetricsSettings(_Section):
    """What Prometheus sees."""

    listen: Listen = ("127.0.0.1", 9540)
    hosts: Annotated[tuple[Text, ...], BeforeValidator(_as_tuple)] = Field(default=(), max_length=64)
    #: channel groups to count by; each adds two series, so the number is small
    groups: dict[str, Text] = Field(default_factory=dict, max_length=64)

    @field_validator("groups")
    @classmethod
    def _names(cls, groups: dict[str, str]) -> dict[str, str]:
        for name in groups:
            if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name):
                raise _wrong(f"{name!r} is no name for a group", "use 1 to 64 letters, digits, _, . and -")
        return groups


class HeartbeatSettings(_Section):
    """Heartbeats of our own, and what is expected of those of others."""

    #: 0: we send none, and others are expected to send theirs every 5 s
    interval: Seconds = Field(default=0.0, le=3600)
    dead_after: int = Field(default=3, ge=1, le=1000)

    @field_validator("interval")
    @classmethod
    def _not_too_often(cls, value: float) -> float:
        if 0 < value < MIN_BEAT:
            raise _wrong(f"every {value:g} s is too often", f"set {MIN_BEAT:g} or more, or 0 for none")
        return value


class RepeatSettings(_Section):
    """Channels whose datagrams are sent more than once."""

    channels: Text = Field(max_length=1024)
    #: the first one counted; more than a few help no more and cost the segment
    copies: int = Field(default=2, ge=2, le=8)
    #: apart, because what is lost is often lost together
    spacing: Seconds = Field(default=0.002, le=60)


def _payload_rules(value: object) -> object:
    """Read what is kept of payloads: ``true``, ``false``, ``hash``, or a list of rules."""
    for said, keep in ((True, "record"), (False, "omit"), ("hash", "hash")):
        if value is said or (isinstance(value, str) and value == said):
            return ({"payload": keep},)
    if not isinstance(value, list | tuple):
        remedy = 'write true, false, hash, or a list of rules like [{channels: "door/", payload: hash}]'
        raise _wrong(f"{_brief(value)} does not say what is kept of payloads", remedy)
    return _as_tuple(value)


class PayloadSettings(_Section):
    """What is kept of the payloads of some channels; without ``channels``, of all others."""

    channels: Text = Field(default="", max_length=1024)
    payload: Literal["record", "hash", "omit"]


class KeepSettings(_Section):
    """How long and how much; 0: without end."""

    age: Seconds = Field(default=0.0)
    size: Bytes = Field(default=0)


class RecorderMetricsSettings(_Section):
    """What Prometheus sees of the recorder."""

    listen: Listen = None


class RecorderSettings(_Section):
    """The recorder, a service of its own: where it writes what it sees, how often, and how much of it."""

    #: a folder, or a URI of pyarrow.fs
    journal: Text = Field(default="/var/lib/bccnd/journal", min_length=1)
    #: as which host records stand there; without it, host
    host: Text | None = None
    spool: Text | None = Field(default=None, min_length=1)
    #: beyond it nothing is recorded: hours of a busy segment, and no full disk
    spool_size: Bytes = Field(default=1 << 30, ge=1 << 20)
    #: a minute's wait for who reads the journal, and 1,440 files a day
    rotate: Seconds = Field(default=60.0, ge=1, le=86_400)
    #: of the log, which is a few times larger than the file that it becomes
    rotate_size: Bytes = Field(default=64 << 20, ge=64 << 10, le=1 << 30)
    keep: KeepSettings = KeepSettings.model_construct()
    #: the first rule that fits a channel decides
    payload: Annotated[tuple[PayloadSettings, ...], BeforeValidator(_payload_rules)] = Field(
        default=(PayloadSettings(payload="record"),), max_length=1000
    )
    metrics: RecorderMetricsSettings = RecorderMetricsSettings.model_construct()

    @field_validator("host")
    @classmethod
    def _names_a_folder(cls, host: str | None) -> str | None:
        if host is not None and (not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", host) or host in (".", "..")):
            raise _wrong(f"{_brief(host)} cannot be part of a path in the journal", "use letters, digits, . _ and -")
        return host

    @model_validator(mode="after")
    def _holds_a_log(self) -> RecorderSettings:
        if self.spool_size < 2 * self.rotate_size:
            raise _wrong(
                "the spool does not hold two logs", "set spool_size to twice rotate_size at least, or lower rotate_size"
            )
        return self


#: what a link may speak, and what follows it
_URL: Final = re.compile(r"(tcp|tls\+tcp|ipc|abstract)://(.+)")


def _url(value: str) -> str:
    """A place that a link listens at or dials."""
    found = _URL.fullmatch(value)
    if found is None:
        remedy = "write tls+tcp://host:port, tcp://host:port, or ipc:///path for this host alone"
        raise _wrong(f"{_brief(value)} is no place for a link", remedy)
    port = found[2].rpartition(":")[2]
    if "tcp" in found[1] and not (":" in found[2] and re.fullmatch(r"[0-9]{1,5}", port) and int(port) <= 65_535):
        raise _wrong(f"{_brief(value)} names no port", f"write {found[1]}://host:port")
    return value


Url = Annotated[Text, AfterValidator(_url)]
Urls = Annotated[tuple[Url, ...], BeforeValidator(_as_tuple)]


class TlsSettings(_Section):
    """Certificates of links, as files in PEM."""

    #: who vouches for the other ends
    ca: Text = Field(min_length=1)
    certificate: Text = Field(min_length=1)
    key: Text = Field(min_length=1)
    #: the name in the certificates of those whom we dial; without it, the host that is dialled
    server_name: Text | None = Field(default=None, min_length=1)
    #: who shows a certificate: both ends, or only who listens
    require: Literal["both", "listener"] = "both"


class NngSettings(_Section):
    """Links to bridges of other segments, over NNG BUS."""

    listen: Urls = Field(default=(), max_length=16)
    dial: Urls = Field(default=(), max_length=256)
    tls: TlsSettings | None = None
    #: channels that go out over links, and those that are taken from them
    send: Patterns = Field(default=("",), max_length=1000)
    receive: Patterns = Field(default=("",), max_length=1000)
    #: messages of senders without a name cannot be told from their copies where several bridges stand on a segment
    nameless: bool = False
    #: connections on all listeners together
    max_peers: int = Field(default=256, ge=1, le=10_000)
    #: messages that wait for one peer: half a second of a busy segment; NNG takes up to 8192
    queue: int = Field(default=4096, ge=16, le=8192)

    @model_validator(mode="after")
    def _leads_somewhere(self) -> NngSettings:
        urls = self.listen + self.dial
        if not urls:
            raise _wrong("a link that neither listens nor dials", "set listen or dial, or leave out gateways.nng")
        for url in urls:
            if urls.count(url) > 1:
                raise _wrong(f"{url} stands there twice", "leave one of them out")
        if any(url.startswith("tls") for url in urls) and self.tls is None:
            raise _wrong(
                "tls+tcp needs certificates", "set tls: {ca: FILE, certificate: FILE, key: FILE}, see docs/links.md"
            )
        return self


class BrokerSettings(_Section):
    """The gateway for publishers and subscribers of the TCP broker."""

    #: where subscribers connect, and where publishers send to
    tcp: Listen = None
    udp: Listen = None
    #: whether what publishers send goes onto the segments, too
    broadcast: bool = False
    #: whether that also holds where others than programs of this host can send to it
    broadcast_strangers: bool = False
    #: where subscriptions are kept over restarts; without it, a file of its own in the state directory
    state: Text | None = Field(default=None, min_length=1)
    #: a descriptor each, and a queue
    max_connections: int = Field(default=1024, ge=1, le=100_000)
    #: ids that are known, connected or not
    max_ids: int = Field(default=4096, ge=1, le=1_000_000)
    #: for one id
    max_subscriptions: int = Field(default=128, ge=1, le=10_000)
    #: what may wait for one subscriber: 650 messages
    queue: Bytes = Field(default=1 << 20, ge=4096, le=1 << 30)
    #: after which an id that is not connected is forgotten; 0: never
    expire: Seconds = Field(default=7 * 86_400.0)
    #: within which a connection says its id
    hello: Seconds = Field(default=10.0, ge=0.1, le=3600)
    #: after which one that has subscribed to nothing and says nothing is ended; 0: never
    idle: Seconds = Field(default=600.0)

    @model_validator(mode="after")
    def _leads_somewhere(self) -> BrokerSettings:
        if self.tcp is None and self.udp is None:
            raise _wrong("a broker that listens nowhere", "set tcp or udp, or leave out gateways.broker")
        if self.broadcasts_for_strangers and not self.broadcast_strangers:
            raise _wrong(
                "whoever can send to gateways.broker.udp would have this host broadcast it, with the host's own check",
                "let udp be an address like 127.0.0.1:5401, or set broadcast_strangers: true",
            )
        return self

    @property
    def broadcasts_for_strangers(self) -> bool:
        """Whether programs of other hosts may have something broadcast."""
        return self.broadcast and self.udp is not None and not ipaddress.ip_address(self.udp[0]).is_loopback


class GatewaySettings(_Section):
    """Ways to other messaging worlds, each a process of its own; off unless configured."""

    nng: NngSettings | None = None
    broker: BrokerSettings | None = None


class Settings(_Section):
    """The whole file."""

    #: first part of every identity on this host
    host: str = Field(default_factory=socket.gethostname, min_length=1, max_length=64)
    names: Literal["any", "perl-safe"] = "any"
    segments: Annotated[tuple[SegmentSettings, ...], BeforeValidator(_as_tuple)] = Field(
        default=(SegmentSettings.model_construct(),), max_length=64
    )
    #: the largest datagram accepted; what we send is never above 1400 bytes
    max_datagram: Bytes = Field(default=MAX_RECEIVE, ge=MAX_SEND, le=MAX_UDP)
    integrity: IntegritySettings = IntegritySettings.model_construct()
    dedup: DedupSettings = DedupSettings.model_construct()
    bus: BusSettings = BusSettings.model_construct()
    metrics: MetricsSettings = MetricsSettings.model_construct()
    heartbeat: HeartbeatSettings = HeartbeatSettings.model_construct()
    #: the first rule that fits a channel decides
    repeat: Annotated[tuple[RepeatSettings, ...], BeforeValidator(_as_tuple)] = Field(default=(), max_length=64)
    #: the first rule that speaks of a right and fits a client decides
    access: Annotated[tuple[AccessSettings, ...], BeforeValidator(_as_tuple)] = Field(default=(), max_length=1000)
    gateways: Annotated[GatewaySettings, BeforeValidator(lambda value: value or {})] = GatewaySettings.model_construct()
    recorder: Annotated[RecorderSettings, BeforeValidator(lambda value: value or {})] = (
        RecorderSettings.model_construct()
    )

    @field_validator("host")
    @classmethod
    def _is_token(cls, host: str) -> str:
        if not re.fullmatch(r"[!-~]+", host) or set(host) & set(":|/*?!"):
            raise _wrong(f"{host!r} cannot be part of a name on the segment", "use letters, digits, . and -")
        return host

    @field_validator("segments")
    @classmethod
    def _distinct(cls, segments: tuple[SegmentSettings, ...]) -> tuple[SegmentSettings, ...]:
        labels = [segment.label for segment in segments]
        for label in labels:
            if label in LINKS:
                raise _wrong(f"{label} is what links are called", "give this segment another name")
            if labels.count(label) > 1:
                raise _wrong(
                    f"two segments are called {label}", "give each a name, address, port or interface of its own"
                )
        return segments

    @model_validator(mode="after")
    def _fits_together(self) -> Settings:
        for number, rule in enumerate(self.repeat):
            last = (rule.copies - 1) * rule.spacing
            if last >= self.dedup.horizon:
                raise _wrong(
                    f"repeat[{number}]: the last copy would come {last:g} s after the first, like a restart",
                    f"stay below dedup.horizon ({self.dedup.horizon:g} s) with fewer copies or less spacing",
                )
        if self.heartbeat.interval and self.integrity.algorithm == "sig" and not self.integrity.keys:
            raise _wrong(
                "heartbeats cannot be signed without a key",
                "name a private key under integrity.keys, or set interval: 0",
            )
        return self


@dataclass(frozen=True)
class Configuration:
    """Settings with everything that they name: the bytes of keys, the numbers of users and groups."""

    settings: Settings
    keys: tuple[bytes, ...] = ()
    signers: dict[bytes, list[bytes]] = field(default_factory=dict)
    uids: dict[str, int] = field(default_factory=dict)
    gids: dict[str, int] = field(default_factory=dict)


def load(path: str | None, *, resolve: bool = True) -> Configuration:
    """Read a configuration; without a path the default file if there is one, else the defaults. Who is not the daemon
    does not ``resolve`` what it names: keys are none of his business.

    Raises ConfigError with every fault found.
    """
    if path is None:
        if not os.path.exists(DEFAULT_PATH):
            return Configuration(Settings())
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
    return read(text, path, resolve=resolve)


def read(text: str, path: str, *, resolve: bool = True) -> Configuration:
    """Read the text of a configuration; ``path`` is named in faults, and relative file names start beside it."""
    document = Document(text, path)
    found = _Found(os.path.dirname(path))
    try:
        settings = Settings.model_validate(document.data, context=found if resolve else None)
    except ValidationError as error:
        raise ConfigError([_fault(document, one) for one in error.errors()]) from error
    signers = {
        os.fsencode(prefix): [found.public_keys[name] for name in names]
        for prefix, names in settings.integrity.signers.items()
        if resolve
    }
    return Configuration(settings, tuple(found.keys), signers, found.uids, found.gids)


def read_recorder(settings: RecorderSettings, given: dict[str, object]) -> RecorderSettings:
    """The recorder's settings with what a command line gives instead; raises ConfigError, which names its options."""
    try:
        payload = given.pop("payload", None)
        rules: dict[str, object] = {} if payload is None else {"payload": [{"payload": payload}]}
        return RecorderSettings.model_validate({**settings.model_dump(), "metrics": {}, **given, **rules}).model_copy(
            update={"metrics": settings.metrics}
        )
    except ValidationError as error:
        document = Document("", "command line")
        raise ConfigError([_fault(document, one) for one in error.errors()]) from error


#: what pydantic says in Python's words, in plain ones
_WANTED: Final = {
    "model_type": "must be keys and values",
    "model_attributes_type": "must be keys and values",
    "dict_type": "must be keys and values",
    "tuple_type": "must be a list",
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "bool_type": "must be true or false",
    "too_short": "must not be empty",
}


def _fault(document: Document, error: ErrorDetails) -> Fault:
    """A fault from what pydantic found."""
    # What pydantic calls the key itself of a mapping is named by the key already.
    where = tuple(part for part in error["loc"] if part != "[key]")
    context = error.get("ctx", {})
    kind = error["type"]
    if kind == "extra_forbidden":
        return document.fault(where, "unknown key", _known_keys(where))
    if kind == "bccnd":
        return document.fault(where, str(context["reason"]), str(context["remedy"]))
    if kind == "missing":
        return document.fault(where, "must be there", "see this key in etc/bccnd.yaml")
    if kind == "too_long":
        return document.fault(
            where, f"must have at most {context['max_length']} entries or characters", "leave some out"
        )
    wanted = _WANTED.get(kind) or error["msg"].replace("Input should be", "must be")
    remedy = f"choose {context['expected']}" if kind == "literal_error" else "see this key in etc/bccnd.yaml"
    return document.fault(where, f"{wanted}, not {_brief(error['input'])}", remedy)


def _known_keys(where: tuple[int | str, ...]) -> str:
    """What could have been meant by an unknown key."""
    model: type[BaseModel] = Settings
    for part in where[:-1]:
        if isinstance(part, str) and part in model.model_fields:
            model = _section_in(model.model_fields[part].annotation) or model
    close = difflib.get_close_matches(str(where[-1]), list(model.model_fields), n=1)
    known = ", ".join(model.model_fields)
    return f"did you mean {close[0]}?" if close else f"known keys here: {known}"


def _section_in(annotation: object) -> type[BaseModel] | None:
    """The section that a key holds, by itself or as a list of them."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_section_in, get_args(annotation))), None)
