"""The command: chooses seeds, runs each in a process of its own, and adds up what they have done."""

from __future__ import annotations

import faulthandler
import hashlib
import json
import logging
import os
import secrets
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
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
@click.option("--hours", type=float, default=1.0, show_default=True, help="Simulated hours of all fleets.")
@click.option("--minutes", type=float, help="Minutes of the clock, instead of --hours.")
@click.option("--fleets", type=int, help="This many fleets, a seed each, instead of --hours.")
@click.option("--length", type=float, default=FLEET, show_default=True, help="Simulated seconds of one fleet.")
@click.option("--fault", metavar="NAME", help="Put a known fault back, and end once it is found.")
@click.option("--list-faults", is_flag=True, help="List the known faults.")
@click.option("--history", type=int, default=40, show_default=True, help="Lines of history behind a failure.")
def main(
    seed: int | None,
    hours: float,
    minutes: float | None,
    fleets: int | None,
    length: float,
    fault: str | None,
    list_faults: bool,
    history: int,
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
    most_fleets = fleets if fleets is not None else 1 << 31
    seconds = 60 * minutes if minutes is not None else 1e6
    simulated = 3600 * hours if fleets is None and minutes is None else 1e9
    while not (accounts and accounts[-1].fault) and len(accounts) < most_fleets and elapsed < seconds:
        accounts.append(_run_apart(first + len(accounts), length, seconds - elapsed))
        elapsed = (interposer.kernel_ns() - begun) / 1e9
        if sum(one.simulated for one in accounts) >= simulated:
            break
    _report(accounts, elapsed, length, fault, history)
    if fault is not None and accounts[-1].fault:
        again = ["--seed", str(accounts[-1].seed), "--fleets", "1", "--length", str(length), "--history", "0"]
        if interposer.run_beside(again, uncompiled=True):
            click.echo(f"seed {accounts[-1].seed} fails without {fault} too")
            sys.exit(1)
    sys.exit(0 if bool(accounts[-1].fault) == (fault is not None) else 1)


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


def _run_apart(seed: int, length: float, left: float) -> Account:
    """Run a fleet in a child, so that nothing of another one is left; for at most ``left`` real seconds."""
    from tools.simulate.simulation import Account

    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        _run_in_child(write, seed, length, left)
    os.close(write)
    with open(read, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    try:
        return Account(**json.loads(data))
    except ValueError:
        return Account(seed, fault=f"the simulation itself has ended ({status}) or hangs")


def _run_in_child(write: int, seed: int, length: float, left: float) -> None:
    """Run a fleet, and write its account; never returns. Where it hangs, it shows where, and ends."""
    from tools.simulate.simulation import run

    faulthandler.enable()
    faulthandler.register(signal.SIGALRM, chain=True)
    signal.alarm(int(_HANGS + min(left, _SLOWEST * length)))
    # The loopback delivers in order on one processor.
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[os.getpid() % len(os.sched_getaffinity(0))]})
    end = interposer.kernel_ns() + left * 1e9
    account = run(seed, length, lambda: interposer.kernel_ns() > end)
    with open(write, "wb") as pipe:
        pipe.write(json.dumps(asdict(account)).encode())
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
