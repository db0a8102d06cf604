"""The command: chooses seeds, runs each in a process of its own, and adds up what they have done."""

from __future__ import annotations

import faulthandler
import hashlib
import json
import logging
import os
import secrets
import select
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tools.namespaces import enter_network_namespace, namespaces_permitted
from tools.simulate import interposer, known_faults, units

if TYPE_CHECKING:
    from tools.simulate.simulation import Account

#: simulated seconds of one fleet
FLEET: Final = 1200.0
#: real seconds after which a fleet hangs, and those that each simulated second may take besides
_HANGS: Final = 400.0
_SLOWEST: Final = 0.25


def names_fault(arguments: Sequence[str]) -> bool:
    """Whether a known fault is asked for, which takes the uncompiled core."""
    return any(one.partition("=")[0] == "--fault" for one in arguments)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--seed", type=int, help="The first seed; else one by chance. A seed replays exactly.")
@click.option("--hours", type=float, help="Simulated hours of all fleets.  [default: 1]")
@click.option("--minutes", type=float, help="Minutes of the clock, instead of --hours.")
@click.option("--fleets", type=int, help="This many fleets, a seed each, instead of --hours.")
@click.option("--length", type=float, default=FLEET, show_default=True, help="Simulated seconds of one fleet.")
@click.option("--fault", metavar="NAME", help="Put a known fault back, and end once it is found.")
@click.option("--list-faults", is_flag=True, help="List the known faults.")
@click.option("--history", type=int, default=40, show_default=True, help="Lines of history behind a failure.")
@click.option("--trace", metavar="FILE", type=Path, help="Write all that the last fleet does, with its system calls.")
def main(
    seed: int | None,
    hours: float | None,
    minutes: float | None,
    fleets: int | None,
    length: float,
    fault: str | None,
    list_faults: bool,
    history: int,
    trace: Path | None,
) -> None:
    """Simulate fleets of whole daemons under a virtual clock, with faults at random, and check invariants all along.

    Each seed draws a fleet, its configuration and all that happens. Ends with one line; after a failure with its
    seed, the last events, and status 1. With --fault, status 0 means that the fault was found: a seed fails, and does
    not without the fault.
    """
    if list_faults:
        for one in known_faults.FAULTS.values():
            click.echo(f"{one.name:24} {one.what}")
        return
    if fault is not None and fault not in known_faults.FAULTS:
        raise click.BadParameter(f"{fault!r} is not known; --list-faults names all", param_hint="--fault")
    if not units.has_room():
        raise click.ClickException(
            "receive buffers are too small: run it as root, or allow more: sysctl net.core.rmem_max=4194304"
        )
    _prepare()
    if fault is not None:
        known_faults.FAULTS[fault].install()
    first = secrets.randbelow(1 << 31) if seed is None else seed
    begun = interposer.kernel_ns()
    accounts: list[Account] = []
    elapsed = 0.0
    while not _is_over(accounts, elapsed, hours, minutes, fleets) and not (accounts and accounts[-1].fault):
        left = 60 * minutes - elapsed if minutes is not None else float("inf")
        accounts.append(_run_apart(first + len(accounts), length, left, trace))
        elapsed = (interposer.kernel_ns() - begun) / 1e9
        if sys.stderr.isatty():
            click.echo(f"\r{len(accounts)} fleets, seed {accounts[-1].seed}, {elapsed:.0f} s", err=True, nl=False)
    _report(accounts, elapsed, length, fault, history)
    if fault is not None and accounts[-1].fault and not _is_clean(accounts[-1].seed, length):
        click.echo(f"seed {accounts[-1].seed} fails without {fault} too")
        sys.exit(1)
    sys.exit(0 if bool(accounts[-1].fault) == (fault is not None) else 1)


def _is_clean(seed: int, length: float) -> bool:
    """Whether a seed passes without a known fault."""
    arguments = ["--seed", str(seed), "--fleets", "1", "--length", str(length), "--history", "0"]
    return interposer.run_beside(arguments, uncompiled=True) == 0


def _is_over(
    accounts: list[Account], elapsed: float, hours: float | None, minutes: float | None, fleets: int | None
) -> bool:
    if fleets is not None:
        return len(accounts) >= fleets
    if minutes is not None:
        return elapsed >= 60 * minutes
    return sum(one.simulated for one in accounts) >= 3600 * (1 if hours is None else hours)


def _prepare() -> None:
    """Replace what daemons ask of their process; import all that fleets need, so that each need not."""
    from tools.simulate import edges
    from tools.simulate.simulation import Simulation

    del Simulation  # loaded once, for all fleets
    logger = logging.getLogger("bccnd")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    if namespaces_permitted():
        enter_network_namespace()
    interposer.set_clocks(0, 0)
    edges.install()


def _run_apart(seed: int, length: float, left: float, trace: Path | None) -> Account:
    """Run a fleet in a child, so that nothing of another one is left; for at most ``left`` real seconds."""
    from tools.simulate.simulation import Account

    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        _run_in_child(write, seed, length, left, trace)
    os.close(write)
    data = b""
    poll = select.poll()
    poll.register(read, select.POLLIN)
    deadline = interposer.kernel_ns() + (_HANGS + min(left, _SLOWEST * length)) * 1e9
    while True:
        if not poll.poll(max(0, int((deadline - interposer.kernel_ns()) / 1e6))):
            # It shows where it hangs, and ends.
            os.kill(child, signal.SIGABRT)
            break
        some = os.read(read, 1 << 16)
        if not some:
            break
        data += some
    os.close(read)
    _, status = os.waitpid(child, 0)
    try:
        return Account(**json.loads(data))
    except ValueError:
        return Account(seed, fault=f"the simulation itself has ended ({status}) or hangs")


def _run_in_child(write: int, seed: int, length: float, left: float, trace: Path | None) -> None:
    """Never returns."""
    from tools.simulate.simulation import run

    faulthandler.enable()

    # The loopback delivers in order on one processor.
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[os.getpid() % len(os.sched_getaffinity(0))]})
    end = interposer.kernel_ns() + min(left, 1e6) * 1e9
    over: Callable[[], bool] = lambda: interposer.kernel_ns() > end  # noqa: E731 - a name for a parameter
    account = run(seed, length, over, trace)
    data = json.dumps(asdict(account)).encode()
    while data:
        data = data[os.write(write, data) :]
    os._exit(0)


def _report(accounts: list[Account], elapsed: float, length: float, fault: str | None, history: int) -> None:
    last = accounts[-1]
    if last.fault:
        click.echo(f"seed {last.seed}, event {last.events}: {last.fault}")
        for line in last.history[-history:] if history else ():
            click.echo(f"  {line}")
        if fault is None:
            again = f"--seed {last.seed} --fleets 1" + (f" --length {length:g}" if length != FLEET else "")
            click.echo(f"again: make simulate ARGS='{again}'")
    digest = hashlib.sha256("".join(one.digest for one in accounts).encode()).hexdigest()[:16]
    hours = sum(one.simulated for one in accounts) / 3600
    events, injected = sum(one.events for one in accounts), sum(one.injected for one in accounts)
    seeds = f"{accounts[0].seed}" if len(accounts) == 1 else f"{accounts[0].seed} to {last.seed}"
    found = f"; {fault} is {'found' if last.fault else 'NOT found'}" if fault else ""
    click.echo(
        f"seed {seeds}: {hours:.2f} h simulated in {elapsed:.0f} s, {events} events, {injected} faults injected, "
        f"digest {digest}{found}"
    )
