"""Schema of the configuration file: its sections and keys, with defaults and limits."""

from __future__ import annotations

import re
import socket
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from bccnd.config.gateway_schema import GatewaySettings
from bccnd.config.recorder_schema import RecorderSettings
from bccnd.config.users_and_keys import Group, KeyFile, PublicKeyFile, User
from bccnd.config.values import (
    Address,
    BusAddress,
    Bytes,
    Interface,
    Listen,
    ListOf,
    Mode,
    Patterns,
    Prefix,
    Program,
    Seconds,
    Section,
    SegmentAddress,
    Text,
    refuse,
)
from bccnd.core.formats.bus_address import read_address
from bccnd.core.formats.quoting import quote
from bccnd.core.tracking.tracker_limits import DEAD_AFTER, EXPIRE, HORIZON, MAX_SOURCES, SANITY
from bccnd.core.wire.bccn1 import MAX_RECEIVE, MAX_SEND, MAX_UDP
from bccnd.core.wire.frames import LINKS
from bccnd.paths import DEFAULT_SOCKET

#: least seconds between heartbeats: those of a fleet must not become its traffic
MIN_HEARTBEAT: Final = 0.1
#: least seconds between reports, for the same reason
MIN_REPORT: Final = 0.2
#: keys that a reload cannot change: sockets and identities are made from them at the start
RESTART_KEYS: Final = (
    *("host", "names", "segments", "max_datagram"),
    *("bus.path", "bus.mode", "bus.group", "bus.dialect", "bus.sockets"),
    *("metrics.listen", "metrics.hosts"),
)

#: said of a configuration whose `IntegritySettings.receive_only` holds
RECEIVE_ONLY: Final = (
    "integrity.keys names no private key to sign with: this host only receives. What its programs publish reaches only "
    "programs here, and it sends no reports"
)


class SegmentSettings(Section):
    """One broadcast domain."""

    #: in metrics and logs; without it, made of interface, address and port
    name: Text = Field(default="", max_length=64)
    #: a broadcast address, or a multicast group in IPv4 or IPv6
    address: SegmentAddress = "255.255.255.255"
    port: int = Field(default=5400, ge=1, le=65_535)
    bind: Address | None = None
    interface: Interface | None = None
    #: routers that multicast may cross; 1 stays on the segment
    hop_limit: int = Field(default=1, ge=1, le=255)
    #: a burst of 160,000 datagrams of 150 bytes, each of which the kernel charges with 832 bytes against twice this
    #: number; memory is used only while a burst needs it
    receive_buffer: Bytes = Field(default=64 << 20, ge=4096, le=1 << 30)

    @property
    def label(self) -> str:
        """The configured name, or one made from the other keys; without ``:``, which ends it in the tap."""
        made = f"{self.interface + '/' if self.interface else ''}{self.address}#{self.port}"
        return self.name or made.replace(":", "-").replace("|", "-")

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if set(name) & set(":|"):
            raise refuse(f"{quote(name)} holds : or |, which end a name in the tap", "use other characters")
        return name

    @field_validator("bind")
    @classmethod
    def _check_family(cls, bind: str | None, info: ValidationInfo) -> str | None:
        address = info.data.get("address")
        if bind is not None and address is not None and (":" in bind) != (":" in address):
            raise refuse(f"{bind} and {address} are of different address families", "leave out 'bind'")
        return bind


class IntegritySettings(Section):
    """The check that datagrams carry."""

    algorithm: Literal["none", "hmac", "crc32", "sig"] = "none"
    #: the first one signs, all of them verify; few, because an unknown sum is compared with all
    keys: ListOf[KeyFile] = Field(default=(), max_length=16)
    #: public keys by the beginning of the srcs they verify; during a rotation there are two
    signers: dict[Prefix, Annotated[ListOf[PublicKeyFile], Field(min_length=1)]] = Field(
        default_factory=dict, max_length=100_000
    )
    #: drop datagrams without a check; ignored without an algorithm
    required: bool = True
    unverifiable: Literal["drop", "accept"] = "drop"

    @property
    def receive_only(self) -> bool:
        """Whether this host verifies, and cannot sign anything that it would send."""
        return self.algorithm == "sig" and not self.keys

    @model_validator(mode="after")
    def _check_keys(self) -> IntegritySettings:
        if self.algorithm == "hmac" and not self.keys:
            raise refuse("hmac needs a key", "make one with 'bccn keygen FILE' and name the file under keys")
        if self.algorithm == "sig" and not self.keys and not self.signers:
            remedy = "make a pair with 'bccn keygen --algorithm sig FILE'; name FILE under keys, FILE.pub under signers"
            raise refuse("sig needs a key", remedy)
        if self.algorithm == "sig" and len(self.keys) > 1:
            raise refuse("sig signs with one key", "leave one under keys; public keys belong under signers")
        if self.algorithm in ("none", "crc32") and self.keys:
            raise refuse(f"algorithm {self.algorithm} takes no keys", "set algorithm: hmac or sig, or leave out keys")
        if self.algorithm != "sig" and self.signers:
            raise refuse(f"algorithm {self.algorithm} takes no signers", "set algorithm: sig, or leave out signers")
        return self


class DedupSettings(Section):
    """What is a duplicate, a restart, a loss."""

    #: below 16 any reordering would be a restart; above 65536 a tracker would take more than 8 KB
    sanity: int = Field(default=SANITY, ge=16, le=65_536)
    horizon: Seconds = Field(default=HORIZON, gt=0, le=3600)
    late: Literal["drop", "deliver"] = "drop"
    freshness: Literal["restart", "monotonic"] = "restart"
    expire: Seconds = Field(default=EXPIRE, gt=0)
    max_sources: int = Field(default=MAX_SOURCES, ge=1, le=10_000_000)
    linked: bool = False

    @model_validator(mode="after")
    def _check_freshness(self) -> DedupSettings:
        if self.late == "deliver" and self.freshness == "monotonic":
            contradiction = "late: deliver and freshness: monotonic contradict each other"
            raise refuse(contradiction, "monotonic refuses every backward step: set late: drop")
        return self


class QueueSettings(Section):
    """Limits of the queue of one client."""

    messages: int = Field(default=1024, ge=1, le=1_000_000)
    bytes: Bytes = Field(default=4 << 20, ge=4096, le=1 << 30)


class SocketSettings(Section):
    """A socket that local programs connect to."""

    path: BusAddress = Field(min_length=1)
    mode: Mode = 0o660
    group: Group | None = None
    dialect: Literal["path", "sbus", "sbus-dot", "broker"] = "path"


class UserSettings(Section):
    """Limits of all clients of one user together."""

    #: three quarters of bus.max_clients, so that no user can take all
    clients: int = Field(default=750, ge=1, le=100_000)
    #: and as many KiB for their text
    subscriptions: int = Field(default=65_536, ge=1, le=10_000_000)
    #: places of wildcards in patterns (`pattern_charges`): 1000 clients of as many users delay a message on a new
    #: channel by 1000 * 24 places of 0.3 us, less than 10 ms
    wildcards: int = Field(default=24, ge=0, le=1_000_000)
    queue_bytes: Bytes = Field(default=64 << 20, ge=4096, le=1 << 34)
    #: messages a second; 0: no limit
    rate: float = Field(default=0, ge=0, le=1e9)

    @field_validator("rate")
    @classmethod
    def _check_rate(cls, rate: float) -> float:
        if 0 < rate < 0.001:
            raise refuse(f"{rate:g} messages a second are too few", "set 0.001 or more, or 0 for no limit")
        return rate


class BusSettings(SocketSettings):
    """The local bus: its first socket, further ones, and limits of the clients on all of them."""

    path: BusAddress = Field(default=DEFAULT_SOCKET, min_length=1)
    sockets: ListOf[SocketSettings] = Field(default=(), max_length=16)
    queue: QueueSettings = QueueSettings.model_construct()
    #: each takes a descriptor, as a service two; services usually have 1024 (soft limit) of up to 524288 (hard limit)
    max_clients: int = Field(default=1000, ge=1, le=100_000)
    #: of one client: each takes some 400 bytes, and 320 for every level if it is in a tree
    max_subscriptions: int = Field(default=4096, ge=1, le=1_000_000)
    user: UserSettings = UserSettings.model_construct()
    #: longer than a pause for garbage collection, short enough not to stall publishers
    patience: Seconds = Field(default=5.0, le=3600)

    @property
    def all_sockets(self) -> tuple[SocketSettings, ...]:
        return (self, *self.sockets)

    @model_validator(mode="after")
    def _check_paths(self) -> BusSettings:
        places = [read_address(one.path) for one in self.all_sockets]
        for one, place in zip(self.all_sockets, places, strict=True):
            if places.count(place) > 1:
                raise refuse(f"two sockets at {one.path}", "give each a path of its own")
        return self


class AccessSettings(Section):
    """A rule: the clients it matches and their rights. It leaves open the rights that it does not name."""

    user: User | None = None
    group: Group | None = None
    program: Program | None = Field(default=None, min_length=1)
    publish: Patterns | None = Field(default=None, max_length=1000)
    subscribe: Patterns | None = Field(default=None, max_length=1000)
    tap: bool | None = None
    tag: bool | None = None
    link: bool | None = None


class MetricsSettings(Section):
    """The metrics listener."""

    listen: Listen = ("127.0.0.1", 9540)
    hosts: ListOf[Text] = Field(default=(), max_length=64)
    #: channel groups to count by; each adds two series
    groups: dict[str, Text] = Field(default_factory=dict, max_length=64)

    @field_validator("groups")
    @classmethod
    def _check_groups(cls, groups: dict[str, str]) -> dict[str, str]:
        for name in groups:
            if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name):
                raise refuse(f"{name!r} is not a name for a group", "use 1 to 64 letters, digits, _, . and -")
        return groups


class HeartbeatSettings(Section):
    """This host's heartbeats, and what is expected of others."""

    #: 0: none are sent, and others are expected every 5 s
    interval: Seconds = Field(default=0.0, le=3600)
    dead_after: int = Field(default=DEAD_AFTER, ge=1, le=1000)

    @field_validator("interval")
    @classmethod
    def _check_interval(cls, value: float) -> float:
        if 0 < value < MIN_HEARTBEAT:
            raise refuse(f"every {value:g} s is too often", f"set {MIN_HEARTBEAT:g} or more, or 0 for none")
        return value


class ReportsSettings(Section):
    """What this host tells others about what it has sent and received, and what it keeps of their reports."""

    #: 0: none are sent; those of others are read all the same
    interval: Seconds = Field(default=10.0, le=3600)
    #: a matrix of 200 hosts takes some 2 MB, one of 1000 some 50 MB
    max_hosts: int = Field(default=1000, ge=2, le=10_000)

    @field_validator("interval")
    @classmethod
    def _check_interval(cls, value: float) -> float:
        if 0 < value < MIN_REPORT:
            raise refuse(f"every {value:g} s is too often", f"set {MIN_REPORT:g} or more, or 0 for none")
        return value


class RepeatSettings(Section):
    """Channels whose datagrams are sent several times."""

    channels: Text = Field(max_length=1024)
    #: with the first one; more cost the segment and help little
    copies: int = Field(default=2, ge=2, le=8)
    #: losses come in bursts, so copies are spread
    spacing: Seconds = Field(default=0.002, le=60)


class Settings(Section):
    """The whole file."""

    #: the first part of every identity on this host
    host: str = Field(default_factory=socket.gethostname, min_length=1, max_length=64)
    names: Literal["any", "perl-safe"] = "any"
    segments: ListOf[SegmentSettings] = Field(default=(SegmentSettings.model_construct(),), max_length=64)
    #: the largest datagram accepted; datagrams that are sent never exceed 1400 bytes
    max_datagram: Bytes = Field(default=MAX_RECEIVE, ge=MAX_SEND, le=MAX_UDP)
    integrity: IntegritySettings = IntegritySettings.model_construct()
    dedup: DedupSettings = DedupSettings.model_construct()
    bus: BusSettings = BusSettings.model_construct()
    metrics: MetricsSettings = MetricsSettings.model_construct()
    heartbeat: HeartbeatSettings = HeartbeatSettings.model_construct()
    reports: ReportsSettings = ReportsSettings.model_construct()
    #: the first rule that matches a channel decides
    repeat: ListOf[RepeatSettings] = Field(default=(), max_length=64)
    #: the first rule that matches a client and names a right decides on it
    access: ListOf[AccessSettings] = Field(default=(), max_length=1000)
    gateways: Annotated[GatewaySettings, BeforeValidator(lambda value: value or {})] = GatewaySettings.model_construct()
    recorder: Annotated[RecorderSettings, BeforeValidator(lambda value: value or {})] = (
        RecorderSettings.model_construct()
    )

    @field_validator("host")
    @classmethod
    def _check_host(cls, host: str) -> str:
        if not re.fullmatch(r"[!-~]+", host) or set(host) & set(":|/*?!"):
            raise refuse(f"{host!r} cannot be part of a name on the segment", "use letters, digits, . _ and -")
        return host

    @field_validator("segments")
    @classmethod
    def _check_labels(cls, segments: tuple[SegmentSettings, ...]) -> tuple[SegmentSettings, ...]:
        labels = [segment.label for segment in segments]
        for label in labels:
            if label in LINKS:
                raise refuse(f"{label} is the name of a link", "give this segment another name")
            if labels.count(label) > 1:
                raise refuse(
                    f"two segments have the name {label}", "give each a name, address, port or interface of its own"
                )
        return segments

    @model_validator(mode="after")
    def _check_gateways_can_connect(self) -> Settings:
        if self.gateways.configured and isinstance(read_address(self.bus.path), int):
            raise refuse(
                f"bus.path: {self.bus.path} is a descriptor of the daemon alone, and the gateways connect to bus.path",
                f"set bus.path to a path or @name, and list {self.bus.path} under bus.sockets",
            )
        return self

    @model_validator(mode="after")
    def _check_repeat_and_heartbeat(self) -> Settings:
        for number, rule in enumerate(self.repeat):
            last = (rule.copies - 1) * rule.spacing
            if last >= self.dedup.horizon:
                raise refuse(
                    f"repeat[{number}]: the last copy, {last:g} s after the first, would be taken for a restart",
                    f"stay below dedup.horizon ({self.dedup.horizon:g} s) with fewer copies or less spacing",
                )
        if self.heartbeat.interval and self.integrity.receive_only:
            raise refuse(
                "heartbeats cannot be signed without a key",
                "name a private key under integrity.keys, or set interval: 0",
            )
        return self
