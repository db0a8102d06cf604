"""`bccnd --gateway NAME`: runs one gateway.

Exit codes: 0 ended by a signal; 1 failed, or an address is taken: start it again; 2 a restart does not help: the
configuration has no such gateway, a certificate cannot be read.
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

#: so that the daemon takes precedence on a busy processor
_NICE: Final = 5
#: reasons of a failed start for which it is worth another attempt
_TEMPORARY: Final = ("address_taken", "cannot_listen")


def run(name: str, settings: Settings, path: str | None, *, bound: bool) -> int:
    """Serve until a signal, or if ``bound`` until standard input ends; return the exit code."""
    log.setup(f"bccnd-{name}")
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as comm:
        comm.write(f"bccnd-{name}")  # the name of this client of the daemon, and of the sender of the broker's messages
    manager = ServiceManager.from_environment()
    try:
        gateway = _make(name, settings, os.path.dirname(path or DEFAULT_PATH))
        with contextlib.suppress(OSError):  # not allowed
            os.nice(_NICE)
        asyncio.run(_serve(gateway, manager, bound))
    except StartError as error:
        manager.status(f"cannot start: {error.detail}")
        log.event("gateway_refused", f"{name}: {error}", remedy=error.remedy, gateway=name, reason=error.reason)
        return 1 if error.reason in _TEMPORARY else 2
    except Exception:  # noqa: BLE001 - logged; the gateway is started again
        log.event("internal_error", f"the gateway {name} failed because of a bug", trace=True)
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
        if not stop.is_set():  # else it was ended while it waited for its address
            raise
