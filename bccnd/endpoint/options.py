"""Checks the options of an endpoint and makes of them what it works with. Raises EndpointError with a remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bccnd.client.message import Data, to_bytes
from bccnd.core.formats.network_address import parse_ip
from bccnd.core.trust.integrity import IntegrityChecker, make_checker, usual_algorithm
from bccnd.errors import BadAddress, EndpointError
from bccnd.net.segment_opening import UdpOptions


def checker_of(
    algorithm: str | None,
    keys: Sequence[Data],
    signers: Mapping[str, Sequence[Data]],
    *,
    required: bool,
    unverifiable: bool,
) -> IntegrityChecker:
    """Return what signs and verifies; without an ``algorithm`` the usual one for these keys."""
    if isinstance(keys, bytes | str):
        raise EndpointError("bad_key", "keys is a list of keys, not one key; write [key]")
    try:
        return make_checker(
            algorithm or usual_algorithm(keys, signers),
            [to_bytes(key) for key in keys],
            {to_bytes(prefix): [to_bytes(key) for key in some] for prefix, some in signers.items()},
            required=required,
            accept_unverifiable=unverifiable,
        )
    except ValueError as wrong:
        raise EndpointError("bad_key", str(wrong)) from wrong


def udp_options(address: str, port: int, bind: str, interface: str | None, hop_limit: int) -> UdpOptions:
    """Return where the segment is; its group may have its interface behind it, like ff02::bcc%eth0."""
    try:
        parse_ip(address)
    except BadAddress as wrong:
        raise EndpointError("bad_address", f"{address!r} is not a numeric address") from wrong
    address, _, scope = address.partition("%")
    if scope and interface not in (None, scope):
        raise EndpointError("bad_address", f"{address}%{scope} is not on the interface {interface}; write one of both")
    interface = interface or scope or None
    check_range("port", port, 1, 65_535)
    check_range("hop_limit", hop_limit, 1, 255)
    return UdpOptions(
        f"{interface + '/' if interface else ''}{address}:{port}",
        address,
        port,
        bind=None if bind == "0.0.0.0" else bind,
        interface=interface,
        hop_limit=hop_limit,
    )


def check_range(option: str, number: int, least: int, most: int) -> None:
    if not least <= number <= most:
        raise EndpointError(f"bad_{option}", f"{option} is {number}; write {least} to {most}")
