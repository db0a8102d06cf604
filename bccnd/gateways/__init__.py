"""Gateways to other messaging systems: each is a process of its own, and a client of the daemon."""

from typing import Final, Literal, get_args

Name = Literal["nng", "broker"]
#: the gateways that exist
NAMES: Final[tuple[Name, ...]] = get_args(Name)
