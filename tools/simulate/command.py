"""Simulates fleets of whole daemons under a virtual clock, with faults at random, and checks invariants all along.

Each seed draws a fleet, its configuration and all that happens. Ends with one line; after a failure with its seed, the
last events, and status 1. With --fault, status 0 means that the fault was found: a seed fails, and does not without it.
"""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import json
import logging
import os
import secrets
import signal
import sys
from dataclasses import asdict
from typing import Final

from tools.namespaces import enter_network_namespace, namespaces_permitted
from tools.simulate import edges, interposer, known_faults, units
from tools.simulate.simulation import Account, run

#: simulated seconds of one fleet
FLEET: Final = 1200.0
#: real seconds after which a fleet hangs, and those that each simulated second may take besides
_HANGS: Final = 400.0
_SLOWEST: Final = 0.25


def main() -> int:
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 31), help="the first; replays exactly")
    parser.add_argument("--fleets", type=int, default=3, help="a seed each, of 20 simulated minutes (3)")
    parser.add_argument("--minutes", type=float, help="minutes of the clock, instead of --fleets")
    parser.add_argument("--length", type=float, default=FLEET, help="simulated seconds of one fleet")
    parser.add_argument("--fault", metavar="NAME", help="put a known fault back, and end once it is found")
    parser.add_argument("--list-faults", action="store_true")
    given = parser.parse_args()
    if given.list_faults:
        print(*(f"{name:24} {what}" for name, what in known_faults.FAULTS.items()), sep="\n")
        return 0
    if given.fault not in {None, *known_faults.FAULTS}:
        parser.error(f"{given.fault!r} is not known; --list-faults names all")
    if not units.has_room():
        sys.exit("receive buffers are too small: run it as root, or allow more: sysctl net.core.rmem_max=4194304")
    _prepare()
    if given.fault:
        known_faults.install(given.fault)
    begun = interposer.kernel_ns()
    seconds = 1e6 if given.minutes is None else 60 * given.minutes
    accounts: list[Account] = []
    elapsed = 0.0
    while elapsed < seconds and (given.minutes is not None or len(accounts) < given.fleets):
        accounts.append(_run_apart(given.seed + len(accounts), given.length, seconds - elapsed))
        elapsed = (interposer.kernel_ns() - begun) / 1e9
        if accounts[-1].fault:
            break
    _report(accounts, elapsed, given)
    last = accounts[-1]
    if given.fault and last.fault:
        again = ["--seed", str(last.seed), "--fleets", "1", "--length", str(given.length)]
        if interposer.run_beside(again, uncompiled=True):
            print(f"seed {last.seed} fails without {given.fault} too")
            return 1
    return int(bool(last.fault) != bool(given.fault))


def _prepare() -> None:
    """Replace what daemons ask of their process, for all fleets."""
    logger = logging.getLogger("bccnd")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    if namespaces_permitted():
        enter_network_namespace()
    interposer.set_clocks(0, 0)
    edges.install()


def _run_apart(seed: int, length: float, left: float) -> Account:
    """Run a fleet in a child, so that nothing of another one is left; for at most ``left`` real seconds."""
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


def _report(accounts: list[Account], elapsed: float, given: argparse.Namespace) -> None:
    last = accounts[-1]
    if last.fault:
        print(f"seed {last.seed}, event {last.events}: {last.fault}")
    if last.fault and not given.fault:
        again = f"--seed {last.seed} --fleets 1" + (f" --length {given.length:g}" if given.length != FLEET else "")
        print(*(f"  {line}" for line in last.history), f"again: make simulate ARGS='{again}'", sep="\n")
    digest = hashlib.sha256("".join(one.digest for one in accounts).encode()).hexdigest()[:16]
    hours = sum(one.simulated for one in accounts) / 3600
    events, injected = sum(one.events for one in accounts), sum(one.injected for one in accounts)
    seeds = f"{accounts[0].seed}" if len(accounts) == 1 else f"{accounts[0].seed} to {last.seed}"
    found = f"; {given.fault} is {'found' if last.fault else 'NOT found'}" if given.fault else ""
    print(
        f"seed {seeds}: {hours:.2f} h simulated in {elapsed:.0f} s, {events} events, {injected} faults injected, "
        f"digest {digest}{found}"
    )
