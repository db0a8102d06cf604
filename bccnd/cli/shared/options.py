"""Options that the commands share: output as JSON, colours, periods, limits and keys."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from bccnd.cli.shared.completion import complete_signers
from bccnd.cli.shared.lazy_group import complete_files
from bccnd.cli.shared.output import SAFE_NUMBERS
from bccnd.cli.shared.parameter_types import Duration, Moment, Whole

F = TypeVar("F", bound=Callable[..., Any])


def compose(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Join several options to one decorator, in this order."""

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _note_safe_numbers(context: click.Context, _param: click.Parameter, value: bool) -> None:
    context.meta[SAFE_NUMBERS] = value


def json_option(text: str = "Print one JSON object per line.") -> Callable[[F], F]:
    """Return the option to print JSON, with this help, and the option that keeps its numbers exact."""
    return compose(
        click.option("--json", "as_json", is_flag=True, help=text),
        click.option(
            "--safe-numbers",
            is_flag=True,
            expose_value=False,
            callback=_note_safe_numbers,
            help="With --json: write numbers beyond 2^53 as text.",
        ),
    )


color_option = click.option(
    "--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True
)
port_option = click.option("--port", type=Whole(1, 65_535), default=5400, help="UDP port.")
period_options = compose(
    click.option(
        "--since", "--from", metavar="TIME", type=Moment(), help="Start of the period: a UTC time, or 15m ago."
    ),
    click.option(
        "--until", "--to", metavar="TIME", type=Moment(end=True), help="End of the period; a day includes its end."
    ),
)


def count_options(what: str) -> Callable[[F], F]:
    """Return the options that limit a command that otherwise never ends."""
    return compose(
        click.option("-n", "--count", type=Whole(min=1), help=f"End after so many {what}."),
        click.option(
            "-t", "--timeout", metavar="TIME", type=Duration(), help="End after this time; exit 5 if -n is unmet."
        ),
    )


def deadline_after(timeout: float | None) -> float | None:
    """Return when ``timeout`` seconds are over (monotonic)."""
    return None if timeout is None else time.monotonic() + timeout


key_options = compose(
    click.option(
        "--key",
        "keys",
        metavar="FILE",
        multiple=True,
        shell_complete=complete_files,
        help="A file with a key. The first key signs, all verify.",
    ),
    click.option(
        "--signer",
        "signers",
        metavar="SRC=FILE",
        multiple=True,
        shell_complete=complete_signers,
        help="A file with the public key of sources below SRC.",
    ),
    click.option(
        "--algorithm",
        type=click.Choice(["none", "crc32", "hmac", "sig"]),
        help="The check of datagrams; by default, the keys decide.",
    ),
)


def read_keys(keys: Sequence[str], signers: Sequence[str], algorithm: str | None) -> dict[str, Any]:
    """Read ``algorithm``, ``keys`` and ``signers`` as an Endpoint takes them. Raises click.UsageError."""
    from bccnd.core.trust.integrity import usual_algorithm
    from bccnd.core.wire.bccn1 import check_src
    from bccnd.errors import BadDatagram, BadKey
    from bccnd.key_files import read_key, read_public_key

    chosen = algorithm or usual_algorithm(keys, signers)
    public: dict[str, list[bytes]] = {}
    try:
        secrets = [read_key(file, algorithm=chosen) for file in keys]
        for signer in signers:
            prefix, _, file = signer.rpartition("=")
            if prefix:
                check_src(prefix.encode("utf-8", "surrogateescape"))
            public.setdefault(prefix, []).append(read_public_key(file))
    except BadKey as bad:
        raise click.UsageError(str(bad)) from bad
    except BadDatagram:
        raise click.UsageError(f"--signer {signer}: {prefix!r} cannot be the beginning of a src") from None
    return {"algorithm": chosen, "keys": secrets, "signers": public}


def given_options(context: click.Context, *names: str) -> list[str]:
    """Return the spellings of those of the named parameters that were given."""
    return [
        param.opts[0]
        for param in context.command.params
        if param.name in names and context.get_parameter_source(param.name) is not ParameterSource.DEFAULT
    ]
