"""What all gateways share: their interface, the connection to the daemon, listening, and the log of peers and drops.

A gateway is a client of the bus in a process of its own, so that its faults stay its own.
"""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any, Final, Protocol, Self, TypeVar

from bccnd import log
from bccnd.client.session import Session
from bccnd.client.transport import Transport
from bccnd.core.formats.network_address import write_host_port
from bccnd.core.wire import frames
from bccnd.drop_catalog.drops import BY_NAME
from bccnd.errors import StartError
from bccnd.gateways.status import GatewayStatus

#: seconds between reports of a gateway to the daemon
REPORT: Final = 1.0
#: seconds that the former gateway may take to end, and between attempts to get its address
TAKEOVER: Final = 5.0
_RETRY: Final = 0.05
#: seconds without a daemon after which that is logged: restarts are shorter
_AWAY: Final = 2.0

_Listener = TypeVar("_Listener")


class Supervisor(Protocol):
    """Receives the state of a start: `bccnd.net.service_manager.ServiceManager`."""

    def ready(self, status: str) -> None: ...

    def status(self, text: str) -> None: ...


class Gateway(Protocol):
    """Connects the bus with another messaging system."""

    async def run(self, stop: asyncio.Event, supervisor: Supervisor | None = None) -> None:
        """Serve until ``stop`` is set, and call ``supervisor.ready`` as soon as all addresses are listened at.

        Raises StartError if it cannot even begin: address_taken, cannot_listen, a certificate that cannot be read; and
        whatever one of its tasks raises.
        """


class DaemonConnection:
    """A gateway's connection to the daemon, made again whenever it is lost. Nothing waits for the daemon."""

    def __init__(self, session: Session, **transport: Any) -> None:
        self.session = session
        self._transport = Transport(session, asyncio.get_running_loop(), self._on_turn, **transport)

    @property
    def up(self) -> bool:
        """Whether the daemon serves this gateway."""
        return self.session.ready

    def start(self) -> None:
        """Connect to the daemon; if it is not there, again and again."""
        self._transport.open()

    def close(self) -> None:
        self._transport.close()

    def subscribe(self, pattern: bytes) -> None:
        self.session.change(pattern, wanted=True)
        self._transport.flush()

    def unsubscribe(self, pattern: bytes) -> None:
        self.session.change(pattern, wanted=False)
        self._transport.flush()

    def send_report(self, report: bytes) -> None:
        """Send the daemon the state of this gateway, in place of an earlier one that it has not taken."""
        if self.up:
            self.session.report = frames.request(frames.GATEWAY, report)
            self._transport.flush()

    def _on_turn(self) -> None:
        """Called when something was read or sent, or the connection has come or gone."""
        raise NotImplementedError


class AwayReporter:
    """Logs each absence of the daemon once."""

    def __init__(self, gateway: str, effect: str, remedy: str) -> None:
        self._gateway, self._effect, self._remedy = gateway, effect, remedy
        #: since when it is away (monotonic), None while it is there
        self._since: float | None = None
        self._logged = False

    def report(self, session: Session) -> None:
        """Log that the daemon is away, or does not serve this gateway; call it every second."""
        if session.ready:
            self._since, self._logged = None, False
            return
        self._since = self._since or time.monotonic()
        if not self._logged and time.monotonic() - self._since >= _AWAY:
            self._logged = True
            reason = session.refused_by
            why = f"does not serve this gateway ({reason})" if reason else f"is away: {session.why}"
            text = f"{session.daemon} {why}; {self._effect}"
            log.event("daemon_away", text, about=self._gateway, remedy=self._remedy, reason=reason or "no_daemon")


def log_drops(status: GatewayStatus, reasons: Iterable[str]) -> None:
    """Log drops for ``reasons`` whose count has grown since the last call."""
    name = status.gateway
    for reason in reasons:
        if count := log.repeats.growth((name, reason), status.dropped.get(reason, 0)):
            means, remedy = BY_NAME["gateway_dropped", reason].explain()
            text = f"{name}: dropped {count} times since the last report ({reason}): {means}"
            log.event("gateway_dropped", text, remedy=remedy, gateway=name, reason=reason, drop=reason, count=count)


def log_peer(event: str, gateway: str, peer: str, what: str, reason: str = "") -> None:
    """Log that a peer has connected or disconnected, or was refused or ended for a ``reason``, with its remedy."""
    fields: dict[str, Any] = {"gateway": gateway, "peer": peer}
    if reason:
        means, fields["remedy"] = BY_NAME["gateway_dropped", reason].explain()
        what = f"{what} ({reason}): {means}"
        fields |= {"reason": reason, "drop": reason}
    log.event(event, f"{peer} {what}", about=peer, **fields)


def report_failure(status: GatewayStatus, error: Exception, what: str) -> None:
    """Log and count the exception being handled, unless it is the fault of a peer or of the network: an OSError."""
    if not isinstance(error, OSError):
        _report_bug(status, what)


def _report_bug(status: GatewayStatus, what: str) -> None:
    status.drop("bug")
    log.bug(f"{what} failed because of a bug in this gateway", gateway=status.gateway, drop="bug")


def handle_loop_errors(status: GatewayStatus) -> None:
    """Log and count exceptions that reach the running event loop; everything else goes on."""

    def on_error(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        try:
            raise context.get("exception") or RuntimeError(context.get("message"))
        except Exception:  # noqa: BLE001 - raised for the log to find it
            _report_bug(status, f"the gateway {status.gateway}")

    asyncio.get_running_loop().set_exception_handler(on_error)


class Tasks:
    """The tasks of a gateway, which end with its context. If one fails, ``stop`` is set, and the context raises its
    exception: the gateway ends, and is started again."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop
        self._tasks: list[asyncio.Task[None]] = []
        self._failure: BaseException | None = None

    def start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self._on_done)
        self._tasks.append(task)
        return task

    def _on_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._failure = self._failure or failure
            self._stop.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._failure is not None:
            raise self._failure


async def run_every(seconds: float, stop: asyncio.Event, work: Callable[[], None]) -> None:
    """Call ``work`` again and again until ``stop`` is set, and once then."""
    while not stop.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), seconds)
        work()


async def wait_to_listen(
    listen: Callable[[], _Listener], patience: float, stop: asyncio.Event, supervisor: Supervisor | None
) -> _Listener:
    """Call ``listen`` until it succeeds, for ``patience`` seconds: the former gateway may be about to give the address
    back. Raises StartError."""
    deadline = time.monotonic() + patience
    while True:
        try:
            return listen()
        except StartError as error:
            if error.reason != "address_taken" or time.monotonic() >= deadline or stop.is_set():
                raise
            if supervisor is not None:
                supervisor.status(f"waiting: {error.detail}")
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), _RETRY)


def cannot_listen(where: str, error: OSError, remedy: str) -> StartError:
    """Return the error of a start that could not listen: address_taken, cannot_listen."""
    reason = "address_taken" if error.errno == errno.EADDRINUSE else "cannot_listen"
    return StartError(reason, f"cannot listen {where}: {error.strerror or error}", remedy)


def raise_descriptor_limit(wanted: int) -> int:
    """Let this process have so many descriptors, if the system does; return how many it may have."""
    soft, hard = (wanted if one < 0 else one for one in resource.getrlimit(resource.RLIMIT_NOFILE))
    if soft < min(wanted, hard):
        with suppress(ValueError, OSError):  # not allowed
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
            return min(wanted, hard)
    return soft


def set_tcp_options(sock: socket.socket, *, idle: float, interval: float, timeout: float, unsent: int) -> None:
    """Send at once, and let the kernel hold no more than ``unsent`` bytes, as what waits in this process is counted.
    Probe a peer after ``idle`` seconds of silence, every ``interval`` seconds; end one that acknowledges nothing for
    ``timeout`` seconds."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    keepalive = {socket.TCP_KEEPIDLE: idle, socket.TCP_KEEPINTVL: interval, socket.TCP_KEEPCNT: 3}
    limits = {socket.TCP_NODELAY: 1, socket.TCP_NOTSENT_LOWAT: unsent, socket.TCP_USER_TIMEOUT: timeout * 1000}
    for option, value in {**keepalive, **limits}.items():
        sock.setsockopt(socket.IPPROTO_TCP, option, max(1, int(value)))


def format_address(address: tuple[Any, ...]) -> str:
    """Return ``host:port`` or ``[host]:port``, link-local addresses with their interface, IPv4 in IPv6 as IPv4."""
    host, port = str(address[0]), address[1]
    if address[3:] > (0,):
        with suppress(OSError):  # the interface was just removed
            name = socket.if_indextoname(address[3])
            host += f"%{name if name.isascii() else address[3]}"
    return write_host_port(host, port)
