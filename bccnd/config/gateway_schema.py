"""Schema of ``gateways``: the links over NNG BUS and the TCP broker."""

from __future__ import annotations

import ipaddress
from typing import Literal

from pydantic import Field, model_validator

from bccnd.config.values import (
    Bytes,
    DialledUrls,
    File,
    HostName,
    LinkUrls,
    Listen,
    Patterns,
    Seconds,
    Section,
    refuse,
)


class TlsSettings(Section):
    """Certificates of links, as files in PEM."""

    #: verifies the certificates of peers
    ca: File = Field(min_length=1)
    certificate: File = Field(min_length=1)
    key: File = Field(min_length=1)
    #: the name expected in the certificate of a dialled peer; without it, the host that is dialled
    server_name: HostName | None = None
    #: which ends must show a certificate
    require: Literal["both", "listener"] = "both"


class NngSettings(Section):
    """Links to bridges of other segments, over NNG BUS."""

    listen: LinkUrls = Field(default=(), max_length=16)
    dial: DialledUrls = Field(default=(), max_length=256)
    tls: TlsSettings | None = None
    #: channels sent over links, and those accepted from them
    send: Patterns = Field(default=("",), max_length=1000)
    receive: Patterns = Field(default=("",), max_length=1000)
    #: with several bridges on a segment, anonymous messages cannot be distinguished from their copies
    nameless: bool = False
    #: connections on all listeners together
    max_peers: int = Field(default=256, ge=1, le=10_000)
    #: messages queued for one peer: half a second of a busy segment; NNG takes up to 8192
    queue: int = Field(default=4096, ge=16, le=8192)

    @model_validator(mode="after")
    def _check_urls(self) -> NngSettings:
        urls = self.listen + self.dial
        if not urls:
            raise refuse("a link that neither listens nor dials", "set listen or dial, or remove gateways.nng")
        for url in urls:
            if urls.count(url) > 1:
                raise refuse(f"{url} is listed twice", "remove one of them")
        if any(url.startswith("tls") for url in urls) and self.tls is None:
            raise refuse(
                "tls+tcp needs certificates", "set tls: {ca: FILE, certificate: FILE, key: FILE}, see docs/links.md"
            )
        return self


class BrokerSettings(Section):
    """The gateway for publishers and subscribers of the TCP broker."""

    #: where subscribers connect, and where publishers send to
    tcp: Listen = None
    udp: Listen = None
    #: whether published messages go onto the segments too
    broadcast: bool = False
    #: whether they do where programs of other hosts can publish
    broadcast_strangers: bool = False
    #: file of the subscriptions; without it, one in the state directory
    state: File | None = Field(default=None, min_length=1)
    #: each takes a descriptor and a queue
    max_connections: int = Field(default=1024, ge=1, le=100_000)
    #: known ids, connected or not
    max_ids: int = Field(default=4096, ge=1, le=1_000_000)
    #: of one id
    max_subscriptions: int = Field(default=128, ge=1, le=10_000)
    #: for one subscriber: 650 messages
    queue: Bytes = Field(default=1 << 20, ge=4096, le=1 << 30)
    #: until an id that is not connected is forgotten; 0: never
    expire: Seconds = Field(default=7 * 86_400.0)
    #: until a connection must have sent its id
    hello: Seconds = Field(default=10.0, ge=0.1, le=3600)
    #: until a silent connection without subscriptions is closed; 0: never
    idle: Seconds = Field(default=600.0)

    @model_validator(mode="after")
    def _check_listeners(self) -> BrokerSettings:
        if self.tcp is None and self.udp is None:
            raise refuse("a broker that listens nowhere", "set tcp or udp, or remove gateways.broker")
        if self.broadcasts_for_strangers and not self.broadcast_strangers:
            raise refuse(
                "with gateways.broker.broadcast, any program that can send to gateways.broker.udp makes this host "
                "broadcast, with the host's own check",
                "let udp be an address like 127.0.0.1:5401, or set broadcast_strangers: true",
            )
        return self

    @property
    def broadcasts_for_strangers(self) -> bool:
        """Whether programs of other hosts can have messages broadcast."""
        return self.broadcast and self.udp is not None and not ipaddress.ip_address(self.udp[0]).is_loopback


class GatewaySettings(Section):
    """Gateways to other messaging systems, each a process of its own; off unless configured."""

    nng: NngSettings | None = None
    broker: BrokerSettings | None = None

    @property
    def configured(self) -> bool:
        """Whether there is any gateway."""
        return self.nng is not None or self.broker is not None
