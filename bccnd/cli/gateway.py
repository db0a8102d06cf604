"""`bccnd --gateway NAME`: one gateway, beside a daemon that it is a client of.

Exit 0 when it was told to end; 1 when it ended by itself, or cannot listen now, so that it is started again; 2 for what
no further attempt can mend: a configuration without this gateway, a certificate that cannot be read.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from typing import Final

from bccnd import log
from bccnd.config import Settings
from bccnd.errors import StartError
from bccnd.gateways.base import Gateway
from bccnd.net.service_manager import ServiceManager
from bccnd.paths import DEFAULT_PATH

#: what its share of the processor is worth less than that of the daemon
_NICE: Final = 5
#: reasons of a failed start that may be gone the next time
_FOR_NOW: Final = ("address_taken", "cannot_listen")


def run(name: str, settings: Settings, path: str | None, *, bound: bool) -> int:
    """Serve until a signal, or until standard input ends if it is ``bound`` to that; the exit code."""
    log.setup(f"bccnd-{name}")
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as comm:
        comm.write(f"bccnd-{name}")  # what the daemon knows us by, and what the broker's messages come under
    manager = ServiceManager.from_environment()
    try:
        gateway = _make(name, settings, os.path.dirname(path or DEFAULT_PATH))
        with contextlib.suppress(OSError):  # where that is not allowed, it does without
            os.nice(_NICE)
        asyncio.run(_serve(gateway, manager, bound))
    except StartError as error:
        manager.status(f"cannot start: {error.detail}")
        log.event("gateway_refused", f"{name}: {error}", remedy=error.remedy, gateway=name, reason=error.reason)
        return 1 if error.reason in _FOR_NOW else 2
    except Exception:  # noqa: BLE001 - said, and the next one may fare better
        log.event("internal_error", f"the gateway {name} has met a bug", trace=True)
        return 1
    finally:
        manager.close()
        log.wait_until_read()
    return 0


def _make(name: str, settings: Settings, folder: str) -> Gateway:
    bus = settings.bus.path
    if name == "nng" and settings.gateways.nng is not None:
        from bccnd.gateways.nng.gateway import NngGateway

        return NngGateway(settings.gateways.nng, bus, folder=folder, horizon=settings.dedup.horizon)
    if name == "broker" and settings.gateways.broker is not None:
        from bccnd.gateways.broker.gateway import BrokerGateway

        return BrokerGateway(settings.gateways.broker, bus, folder)
    raise StartError("not_configured", f"the configuration has no gateways.{name}", "see gateways in bccnd.yaml(5)")


async def _serve(gateway: Gateway, manager: ServiceManager, bound: bool) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if bound:

        def on_input() -> None:
            if not os.read(sys.stdin.fileno(), 512):
                loop.remove_reader(sys.stdin.fileno())
                stop.set()

        loop.add_reader(sys.stdin.fileno(), on_input)
    try:
        await gateway.run(stop, manager)
    except StartError:
        if not stop.is_set():  # else it was told to end while it waited for its address
            raise
