"""Values of the configuration file: how each kind is written, and the types that the schema uses for them."""

from __future__ import annotations

import ipaddress
import os
import re
from typing import Annotated, Final, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict
from pydantic_core import PydanticCustomError

from bccnd.core.formats import durations_and_sizes
from bccnd.core.formats.bus_address import is_descriptor_path, read_address
from bccnd.core.formats.network_address import INTERFACE, check_host, parse_ip, parse_ip_port, parse_link_url
from bccnd.core.formats.quoting import quote
from bccnd.core.wire.bccn1 import check_src
from bccnd.errors import BadAddress, BadDatagram

#: bytes of a program's name that the kernel keeps
MAX_PROGRAM_NAME: Final = 15
#: what to do about an address, by the reason for which it is refused
_ADDRESS_REMEDIES: Final = {
    "no_interface": "write its interface too, like [fe80::1%eth0]:5402",
    "no_host": "write a name like relay01 or relay01.example.org, or an address; in URLs IPv6 like [2001:db8::1]",
    "too_long": "choose a shorter one",
}


class Section(BaseModel):
    """A mapping of the file with known keys."""

    # The schema is built at the first validation, as a whole; defaults are therefore not validated.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_default=False, defer_build=True)


def refuse(reason: str, remedy: str) -> PydanticCustomError:
    """Make the error for a value that is refused."""
    return PydanticCustomError("bccnd", "{reason}", {"reason": reason, "remedy": remedy})


def check_text(value: str) -> str:
    """Refuse characters that no name, path or pattern can hold."""
    if not value.isprintable():
        raise refuse(f"{quote(value)} holds characters that cannot be printed", "write plain text")
    return value


def parse_duration(value: object) -> float:
    """Parse a number of seconds, or ``200ms``, ``5s``, ``10m``, ``24h``, ``7d``."""
    seconds = durations_and_sizes.parse_duration(value) if isinstance(value, str) else None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= durations_and_sizes.MAX_SECONDS:
        seconds = float(value)
    if seconds is None:
        raise refuse(
            f"{quote(value)} is not a duration", "write a number of seconds, or a number with ms, s, m, h or d"
        )
    return seconds


def parse_size(value: object) -> int:
    """Parse a number of bytes, or ``64KiB``, ``4MiB``, ``1GiB``."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= durations_and_sizes.MAX_SIZE:
        return value
    size = durations_and_sizes.parse_size(value) if isinstance(value, str) else None
    if size is None:
        raise refuse(f"{quote(value)} is not a size", "write a number of bytes, or a whole number with KiB, MiB or GiB")
    return size


def parse_mode(value: object) -> int:
    """Parse a file mode. YAML reads an unquoted 0660 as the octal number it means."""
    mode = -1
    if isinstance(value, str) and re.fullmatch(r"0?[0-7]{3}", value):
        mode = int(value, 8)
    elif isinstance(value, int) and not isinstance(value, bool):
        mode = value
    if not 0 <= mode <= 0o777 or mode & 0o600 != 0o600:
        raise refuse(
            f"{quote(value)} is not a mode for a socket",
            'write it as "0660": at least read and write for the owner',
        )
    return mode


def parse_address(value: object) -> str:
    try:
        return str(parse_ip(value if isinstance(value, str) else ""))
    except BadAddress:
        remedy = "write an IPv4 address like 255.255.255.255, or an IPv6 address like ff02::bcc"
        raise refuse(f"{quote(value)} is not an address", remedy) from None


def parse_segment_address(value: object) -> str:
    address = parse_address(value)
    group = ipaddress.ip_address(address)
    # From Python 3.13 on, a mapped IPv4 group counts as multicast; the kernel does not take it for one.
    if group.version == 6 and (group.scope_id or group.ipv4_mapped or not group.is_multicast):
        raise refuse(
            f"{address} is not a multicast group, and IPv6 has no broadcast",
            "write a group like ff02::bcc, and its interface under 'interface'",
        )
    return address


def check_interface(value: str) -> str:
    """Refuse a name that the kernel does not take: it may have 15 bytes."""
    if not INTERFACE.fullmatch(value):
        raise refuse(f"{quote(value)} is not the name of an interface", "write one that 'ip link' shows, like eth0")
    return value


def parse_listen(value: object) -> tuple[str, int] | None:
    """Parse ``host:port`` or ``[host]:port``; ``off`` (which YAML reads as false) is None."""
    if value is None or value is False or value in ("off", ""):
        return None
    try:
        return parse_ip_port(value if isinstance(value, str) else "")
    except BadAddress as bad:
        if bad.reason == "no_interface":
            raise _refuse_address(bad, "") from None
        raise refuse(
            f"{quote(value)} is not an address to listen on", "write address:port, like 127.0.0.1:9540, or off"
        ) from None


def check_host_name(value: str) -> str:
    """Refuse what is neither the name nor the address of a host."""
    try:
        check_host(value)
    except BadAddress as bad:
        raise _refuse_address(bad, "") from None
    return value


def check_prefix(prefix: str) -> str:
    if prefix:
        try:
            check_src(os.fsencode(prefix))
        except BadDatagram:
            remedy = 'write the first part of a src, like relay01 or relay01/cardsys, or "" for all others'
            raise refuse(f"{quote(prefix)} cannot be the beginning of a src", remedy) from None
    return prefix


def check_program(name: str) -> str:
    if len(name.encode()) > MAX_PROGRAM_NAME:
        shortened = name.encode()[:MAX_PROGRAM_NAME].decode(errors="replace")
        raise refuse(
            f"the kernel keeps {MAX_PROGRAM_NAME} characters of a program's name, and {quote(name)} has more",
            f"write {shortened}, or what 'bccn clients' shows",
        )
    return name


def check_bus_address(text: str) -> str:
    remedy = "write a path like /run/bccnd/bus.sock, @name, or /dev/fd/3"
    try:
        address = read_address(text)
    except BadAddress as bad:
        raise refuse(bad.detail, remedy) from None
    if isinstance(address, str) and is_descriptor_path(address):
        raise refuse(f"no socket can be made at {text}", remedy)
    return text


def check_file(path: str) -> str:
    """Refuse a descriptor of the process that reads the configuration: another process opens the file."""
    if is_descriptor_path(path):
        raise refuse(f"{path} is a descriptor, which the process that opens this file does not have", "name a file")
    return path


def check_link_url(value: str) -> str:
    """Refuse what a link cannot listen at."""
    return _check_link_url(value, dials=False)


def check_dialled_url(value: str) -> str:
    """Refuse what a link cannot dial."""
    return _check_link_url(value, dials=True)


def _check_link_url(value: str, *, dials: bool) -> str:
    try:
        parse_link_url(value, dials=dials)
    except BadAddress as bad:
        remedy = "write tls+tcp://host:port, tcp://host:port, or ipc:///path for this host alone"
        raise _refuse_address(bad, remedy) from None
    return value


def _refuse_address(bad: BadAddress, remedy: str) -> PydanticCustomError:
    return refuse(bad.detail, _ADDRESS_REMEDIES.get(bad.reason, remedy))


def as_tuple(value: object) -> object:
    """Freeze a list of YAML; nothing at all is an empty one."""
    if value is None or value == {}:
        return ()
    return tuple(value) if isinstance(value, list) else value


_T = TypeVar("_T")
#: a list in the file
ListOf = Annotated[tuple[_T, ...], BeforeValidator(as_tuple)]
Text = Annotated[str, AfterValidator(check_text)]
Seconds = Annotated[float, BeforeValidator(parse_duration)]
Bytes = Annotated[int, BeforeValidator(parse_size)]
Mode = Annotated[int, BeforeValidator(parse_mode)]
Address = Annotated[str, BeforeValidator(parse_address)]
SegmentAddress = Annotated[str, BeforeValidator(parse_segment_address)]
Interface = Annotated[str, AfterValidator(check_interface)]
Listen = Annotated[tuple[str, int] | None, BeforeValidator(parse_listen)]
Prefix = Annotated[Text, AfterValidator(check_prefix)]
File = Annotated[Text, AfterValidator(check_file)]
Program = Annotated[Text, AfterValidator(check_program)]
BusAddress = Annotated[Text, AfterValidator(check_bus_address)]
Patterns = ListOf[Text]
LinkUrls = ListOf[Annotated[Text, AfterValidator(check_link_url)]]
DialledUrls = ListOf[Annotated[Text, AfterValidator(check_dialled_url)]]
HostName = Annotated[Text, AfterValidator(check_host_name)]
