"""`--direct`: publish and subscribe straight on the segment, on hosts without a daemon.

Law: what the options say becomes an Endpoint, or a message that says which option is wrong. What only `--direct` needs
is loaded only for it.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from bccnd.client.message import Message
from bccnd.core import bccn1
from bccnd.errors import BadDatagram, BadKey, EndpointError

if TYPE_CHECKING:
    from bccnd.client.endpoint import Endpoint

#: the parameters that mean something with --direct only
_ONLY_DIRECT = ("address", "port", "interface", "hop_limit", "name", "keys", "signers", "algorithm")

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

_OPTIONS = (
    click.option("--direct", is_flag=True, help="Speak on the segment itself, without a daemon."),
    click.option("--address", default="255.255.255.255", show_default=True, help="--direct: where to."),
    click.option("--port", type=click.IntRange(1, 65_535), default=5400, show_default=True, help="--direct: UDP port."),
    click.option("--interface", metavar="NAME", help="--direct: on this interface only."),
    click.option("--hop-limit", type=click.IntRange(1, 255), default=1, help="--direct: routers multicast may pass."),
    click.option("--name", metavar="SRC", help="--direct: our name; HOST/bccn/PID without it."),
    click.option("--key", "keys", metavar="FILE", multiple=True, help="--direct: a key; the first signs, all verify."),
    click.option("--signer", "signers", metavar="SRC=FILE", multiple=True, help="--direct: a public key, and of whom."),
    click.option(
        "--algorithm",
        type=click.Choice(["none", "crc32", "hmac", "sig"]),
        help="--direct: the check of datagrams; hmac where there is a --key, sig where there is a --signer, else none.",
    ),
)


def direct_options(command: F) -> F:
    """Give a command the options of `--direct`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def refuse_without_direct(context: click.Context) -> None:
    """Raises click.UsageError for options that would be ignored: who names a key must not be left without it."""
    for param in context.command.params:
        given = context.get_parameter_source(param.name or "") is not ParameterSource.DEFAULT
        if param.name in _ONLY_DIRECT and given:
            raise click.UsageError(f"{param.opts[0]} needs --direct")


def open_endpoint(
    *,
    address: str,
    port: int,
    interface: str | None,
    hop_limit: int,
    name: str | None,
    keys: Sequence[str],
    signers: Sequence[str],
    algorithm: str | None,
    dedup: bool = False,
) -> Endpoint:
    """Raises click.UsageError for options that are wrong, EndpointError where the segment cannot be reached."""
    from bccnd.client.endpoint import Endpoint
    from bccnd.client.keys import read_key, read_public_key
    from bccnd.core.identity import identity
    from bccnd.core.integrity import usual_algorithm

    chosen = algorithm or usual_algorithm(keys, signers)
    public: dict[str, list[bytes]] = {}
    for signer in signers:
        prefix, _, file = signer.rpartition("=")
        if prefix:
            try:
                bccn1.check_src(os.fsencode(prefix))
            except BadDatagram:
                raise click.UsageError(f"--signer {signer}: {prefix!r} cannot be the beginning of a src") from None
        public.setdefault(prefix, []).append(_read(read_public_key, file))
    try:
        endpoint = Endpoint(
            name if name is not None else identity(socket.gethostname().encode(), b"bccn", os.getpid()).decode("ascii"),
            address,
            port,
            keys=[_read(partial(read_key, algorithm=chosen), file) for file in keys],
            interface=interface,
            hop_limit=hop_limit,
            algorithm=chosen,
            signers=public,
            largest=bccn1.MAX_UDP,
            dedup=dedup,
        )
    except EndpointError as wrong:
        raise click.UsageError(wrong.detail) from wrong
    endpoint.open()
    return endpoint


def _read(read: Callable[[str], bytes], file: str) -> bytes:
    try:
        return read(file)
    except BadKey as bad:
        raise click.UsageError(str(bad)) from bad


def messages(endpoint: Endpoint, patterns: Sequence[str], deadline: float | None) -> Iterator[Message]:
    """The messages whose channel matches a pattern, or that are for us or for everyone, until ``deadline``
    (monotonic)."""
    from bccnd.core.pattern_tree import PatternTree
    from bccnd.core.patterns import DIALECTS

    wanted: PatternTree[int] = PatternTree(DIALECTS["path"])
    for pattern in patterns:
        wanted.add(wanted.compile(os.fsencode(pattern)), 1)
    for message in until(deadline, endpoint.recv):
        if message.form != "plain" or wanted.match(os.fsencode(message.chan)):
            yield message


def until(deadline: float | None, receive: Callable[[float | None], T | None]) -> Iterator[T]:
    """What there is to receive, one after the other, until ``deadline`` (monotonic); also if there is no end to it."""
    while True:
        left = None if deadline is None else deadline - time.monotonic()
        got = receive(left if left is None else max(0.0, left))
        if got is None:
            return
        yield got
        if left is not None and left <= 0:
            return
