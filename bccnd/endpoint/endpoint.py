"""A client that speaks on the segment itself, without a daemon: the calls of the protocol text and of the Perl module.

Invariant: what cannot be sent raises EndpointError and is kept for `error`; what is received and not acceptable is
counted and never raises. Everything that others can make grow is bounded. Source: BCCN, API LAYERS; Net::BCCN, METHODS.
"""

from __future__ import annotations

import contextlib
import errno
import math
import select
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, overload

from bccnd.client.message import Data, Message, to_bytes, to_text
from bccnd.client.request_reply import refuse_coroutine
from bccnd.client.router import PatternTable, call_listeners, raise_errors
from bccnd.core.tracking.tracker_limits import HORIZON, SANITY
from bccnd.core.trust.integrity import make_checker
from bccnd.core.wire import bccn1, directed_targets
from bccnd.core.wire.verdicts import ACCEPTED, DUPLICATE, NOT_ADDRESSED, NUMBERS
from bccnd.endpoint.options import check_range, checker_of, udp_options
from bccnd.endpoint.receive_queues import ChannelQueues, EndpointStatistics, RememberedMessages
from bccnd.endpoint.threads import SENDING, Heartbeat
from bccnd.errors import BadDatagram, BadMessage, EndpointError, StartError
from bccnd.net.segment_opening import destination, grow_receive_buffer, open_udp, peer_name

#: datagrams taken by one call, so that a flood lets the caller go on
MAX_TAKEN: Final = 10_000
#: bytes that the kernel keeps while the program is busy, if it grants them
RECEIVE_BUFFER: Final = 4 << 20
#: seconds between heartbeats, as the protocol text recommends
HEARTBEAT_INTERVAL: Final = 5.0
#: seconds that `send` waits for an interface that is behind
SEND_PATIENCE: Final = 5.0
#: milliseconds; the kernel counts them in an int
LONGEST_POLL: Final = 2**31 - 1


class Endpoint:
    """One program on the segment. Raises EndpointError for options that make no sense.

    ``name`` is its src; with "?" (unknown) it receives no directed messages. ``address``, ``port``, ``bind``,
    ``interface`` and ``hop_limit`` (multicast) say where the segment is. ``algorithm`` is ``none``, ``crc32``, ``hmac``
    (the default with ``keys``: the first signs, all verify) or ``sig``. For ``sig``, ``keys`` is one private key, and
    ``signers`` has the public keys (PEM) by the beginning of the src for which they are valid. ``required`` drops
    datagrams without a check. ``dedup`` drops repeated datagrams: same address, src, seq and channel. It forgets those
    of a source that restarts, by the daemon's rules. ``speed_window`` is the number of messages from which `stats`
    calculates speeds. ``largest`` is the longest accepted datagram, in bytes.

    The socket is opened by `open`, or ``with``. Only `send` and the methods that call it may be called from several
    threads, and from a signal handler, whatever that has interrupted.
    """

    def __init__(
        self,
        name: str = "?",
        address: str = "255.255.255.255",
        port: int = 5400,
        bind: str = "0.0.0.0",
        keys: Sequence[Data] = (),
        dedup: bool = False,
        speed_window: int = 0,
        *,
        interface: str | None = None,
        hop_limit: int = 1,
        algorithm: str | None = None,
        signers: Mapping[str, Sequence[Data]] | None = None,
        required: bool = True,
        accept_unverifiable: bool = False,
        largest: int = bccn1.MAX_RECEIVE,
    ) -> None:
        self._checker = checker_of(algorithm, keys, signers or {}, required=required, unverifiable=accept_unverifiable)
        check_range("speed_window", speed_window, 0, 1_000_000)
        check_range("largest", largest, 1, bccn1.MAX_UDP)
        self._options = udp_options(address, port, bind, interface, hop_limit)
        self._largest = largest
        self._sock: socket.socket | None = None
        self._to: tuple[Any, ...] = ()
        self._error: str | None = None
        self._seq = time.time_ns() // 1000
        self.name = name
        self._listeners: PatternTable[Callable[[Message], object]] = PatternTable()
        self._queues = ChannelQueues(speed_window)
        self._remembered = RememberedMessages(SANITY, HORIZON) if dedup else None
        self._statistics = EndpointStatistics(self._queues, self._remembered)
        self._heartbeat: Heartbeat | None = None

    # -- fundamental calls

    def open(self) -> bool:
        """Open the socket and return True. Raises EndpointError, whose text names a remedy."""
        self._error = None
        if self._sock is None:
            try:
                self._sock = open_udp(self._options)
                grow_receive_buffer(self._sock, RECEIVE_BUFFER)
                self._to = destination(self._options)
            except (StartError, OSError) as error:
                self.close()
                self._error = str(error)
                raise EndpointError(getattr(error, "reason", "cannot_open"), self._error) from error
        return True

    def close(self) -> None:
        """Close the socket and end the heartbeat; messages that wait in channels stay."""
        self.heartbeat_stop()
        sock, self._sock = self._sock, None
        if sock is not None:
            sock.close()

    def fileno(self) -> int:
        """The descriptor of the socket, for select, poll, epoll or asyncio. When it is readable, call `dispatch` or
        `recv(0)`."""
        return self._opened().fileno()

    @property
    def name(self) -> str:
        """The src of this endpoint: the sender of its messages, and the target of directed ones. An empty name becomes
        "?"."""
        return to_text(self._name)

    @name.setter
    def name(self, name: str | None) -> None:
        src = to_bytes(name or "") or bccn1.UNKNOWN_SRC
        _check(bccn1.check_src, src)
        self._name = src

    @property
    def seq(self) -> int:
        """The number of the next datagram. It begins at the clock in microseconds, so that messages after a restart are
        not taken for old ones."""
        return self._seq

    @seq.setter
    def seq(self, number: int) -> None:
        if not 0 <= number <= bccn1.MAX_SEQ:
            raise EndpointError("bad_seq", f"{number} does not fit in 64 bits")
        with SENDING:
            self._seq = number

    @overload
    def send(self, chan: str, payload: Data = b"", /, *, src: str | None = None, key: Data | None = None) -> int: ...
    @overload
    def send(self, src: str | None, chan: str, payload: Data, /, *, key: Data | None = None) -> int: ...
    def send(self, *parts: Data | None, src: Data | None = None, key: Data | None = None) -> int:
        """``send(chan, payload, *, src=None)``: broadcast a datagram, and return its seq. The order of the protocol's
        description, ``send(src, chan, payload)``, works as well.

        ``src`` is the own name by default; an empty one becomes "?". ``key`` signs this datagram by HMAC with another
        key than usual. Raises EndpointError: bad_src, bad_channel, bad_target, too_long, no_signing_key, not_open, or
        the name of the kernel's error.
        """
        if len(parts) == 3:
            src, *parts = parts  # type: ignore[assignment]
        chan, payload = (*parts, b"")[:2]
        source = self._name if src is None else to_bytes(src) or bccn1.UNKNOWN_SRC
        self._error = None
        try:
            return self._transmit(source, to_bytes(chan or b""), to_bytes(payload or b""), key)
        except EndpointError as failed:
            self._error = failed.detail
            raise

    def _transmit(self, src: bytes, chan: bytes, payload: bytes, key: Data | None = None) -> int:
        """`send` without remembering what went wrong; for any thread."""
        self._opened()
        _check(bccn1.check_src, src)
        _check(bccn1.check_chan, chan)
        try:
            sign = self._checker.sign if key is None else make_checker("hmac", [to_bytes(key)]).sign
        except ValueError as wrong:
            raise EndpointError("bad_key", str(wrong)) from wrong
        deadline = time.monotonic() + SEND_PATIENCE
        while True:
            with SENDING:
                sock, seq = self._opened(), self._seq
                datagram = _signed(bccn1.build_body(src, seq, chan, payload), sign)
                if self._seq != seq:
                    continue  # a signal handler has sent meanwhile
                # Python runs no signal handler from that comparison until `sendto` has returned.
                self._seq = following = (seq + 1) & bccn1.MAX_SEQ
                try:
                    sock.sendto(datagram, self._to)
                except OSError as error:
                    if self._seq == following:  # none of a signal handler is behind it
                        self._seq = seq
                    self._opened()  # or it was closed meanwhile
                    if not isinstance(error, BlockingIOError) or time.monotonic() >= deadline:
                        name = errno.errorcode.get(error.errno or 0, "UNKNOWN")
                        raise EndpointError(name, f"cannot send to {self._options.name}: {error.strerror}") from error
                else:
                    return seq
            # We are ahead of the interface. Other threads may send meanwhile.
            self._wait(deadline, select.POLLOUT)

    def beat(self, status: Data = b"") -> None:
        """Send one heartbeat now; errors are ignored."""
        with contextlib.suppress(EndpointError):
            self._beat(status)

    def _beat(self, status: Data) -> None:
        name = self._name  # another thread may change it
        self._transmit(name, bccn1.HEARTBEAT + name, to_bytes(status))

    def recv(self, timeout: float | None = None) -> Message | None:
        """The next message of any channel; None after ``timeout`` seconds.

        Messages that `receive` has queued come first.
        """
        if self._queues.waiting:
            return self._queues.take_oldest()
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            message = self._read()
            if message is not None or (deadline is not None and time.monotonic() >= deadline):
                return message
            if not self._wait(deadline):
                return None

    # -- conventions

    def listen(self, pattern: str, callback: Callable[[Message], object]) -> None:
        """From now on `dispatch` calls ``callback`` with each message whose channel matches: ``cardsys/tx``,
        ``cardsys/*/tx``, ``cardsys/>``. Messages to everyone, and to this endpoint, reach every callback.

        Raises TypeError for an ``async def``."""
        refuse_coroutine(callback)
        self._listeners.add(callback, to_bytes(pattern))

    def unlisten(self, pattern: str, callback: Callable[[Message], object]) -> bool:
        """Remove a callback of `listen`; False if it was not registered."""
        return self._listeners.remove_value(callback, to_bytes(pattern))

    def dispatch(self) -> int:
        """Call the callbacks of all waiting messages that match; returns the number of messages taken.

        If a callback raises, the other callbacks of that message are called first; the next call takes the rest."""
        count = 0
        errors: list[Exception] = []
        self._opened()
        while not errors and count < MAX_TAKEN and self._sock is not None and (message := self.recv(0)) is not None:
            count += 1
            call_listeners(self._listeners, message, errors.append)
        raise_errors(errors)
        return count

    def send_all(self, payload: Data = b"", *, key: Data | None = None) -> int:
        """Send a message to every listener, whatever its patterns."""
        return self.send("!", payload, key=key)

    def send_to(self, target: str, payload: Data = b"", *, key: Data | None = None) -> int:
        """Send a message to one name (``host/program/pid``) or to all below a prefix (``host/program/*``)."""
        if not target:
            raise EndpointError("bad_target", "the target is empty; send_all reaches everyone")
        return self.send("!" + target, payload, key=key)

    def send_topic(self, topic: str, payload: Data = b"", *, key: Data | None = None) -> int:
        """Send a message on a channel."""
        return self.send(topic, payload, key=key)

    def heartbeat_start(self, interval: float = HEARTBEAT_INTERVAL, status: Data = b"") -> None:
        """Send a heartbeat on ``heartbeat/<name>`` now and every ``interval`` seconds, until `close`. After a fork, the
        child starts its own, under its own name.

        A thread sends it, so it shows only that this process exists, not that it works.
        """
        if self._name == bccn1.UNKNOWN_SRC:
            raise EndpointError("no_name", "a heartbeat needs a name")
        if not 0 < interval <= 86_400:
            raise EndpointError("bad_interval", "an interval must be above 0 and at most a day")
        self.heartbeat_stop()
        self._opened()
        try:
            self._beat(status)
        except EndpointError as failed:
            # The network may be back for the next one. What is wrong with ours, is wrong with all of them.
            if not isinstance(failed.__cause__, OSError):
                raise
        self._heartbeat = Heartbeat(partial(self.beat, status), interval)

    def heartbeat_stop(self) -> None:
        """Send no more heartbeats."""
        heartbeat, self._heartbeat = self._heartbeat, None
        if heartbeat is not None:
            heartbeat.stop()

    # -- as the Perl module has it

    def notify(self, chan: str, payload: Data = b"") -> bool:
        """Send a message on a channel; False if that failed, and then `error` says why."""
        try:
            self.send(chan, payload)
        except EndpointError:
            return False
        return True

    def receive(self, chan: str | None = None, timeout: float | None = None) -> Message | None:
        """One message of a channel, or None; without a channel the next message of any, like `recv`.

        With a channel, all waiting messages are put into queues, one for each channel. If the queue of this channel is
        then empty, the call waits up to ``timeout`` seconds (0 by default) for a message of any channel.
        """
        if chan is None:
            return self.recv(timeout)
        waiting = self._queues.waiting
        taken = self._read_available()
        if not taken and chan not in waiting and self._wait(time.monotonic() + (timeout or 0.0)):
            self._read_available()
        return self._queues.take(chan) if chan in waiting else None

    def error(self) -> str | None:
        """The error of the last operation, or None."""
        return self._error

    def stats(self) -> dict[str, Any]:
        """The figures of the Perl module: ``QSC`` number of channels, ``SEEN_QS`` their names, ``ACTIVE_QS`` those with
        waiting messages, ``QMC`` waiting messages, ``TQMC`` received messages (``*``: in all). With ``dedup``: ``DDC``
        remembered messages and ``DDO`` the Unix time of the oldest. With ``speed_window``: ``SS`` messages per second.

        Also ``VERDICTS`` of all datagrams by name, and ``DROPPED`` messages for which the queues had no room.
        """
        return self._statistics.figures(time.time())

    def clear_dedup(self, seconds: float = 0.0) -> None:
        """Forget the messages remembered for longer than ``seconds``; by default all."""
        if self._remembered is not None:
            self._remembered.forget(time.time() - seconds if seconds else math.inf)

    # -- for Python

    def __iter__(self) -> Iterator[Message]:
        """Messages, for ever."""
        while (message := self.recv()) is not None:
            yield message

    def __enter__(self) -> Endpoint:
        self.open()
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    # -- inside

    def _opened(self) -> socket.socket:
        if self._sock is None:
            raise EndpointError("not_open", "call open() first")
        return self._sock

    def _wait(self, deadline: float | None, event: int = select.POLLIN) -> bool:
        """Whether the socket can be read (or written to) before ``deadline`` (monotonic)."""
        poll = select.poll()
        try:
            poll.register(self._opened(), event)
        except ValueError as closed:
            raise EndpointError("not_open", "the endpoint was closed meanwhile") from closed
        left = None if deadline is None else min(max(0.0, (deadline - time.monotonic()) * 1000), LONGEST_POLL)
        return bool(poll.poll(left))

    def _read(self) -> Message | None:
        """The next message from the socket; None when nothing is there."""
        sock = self._opened()
        for _ in range(MAX_TAKEN):
            try:
                raw, address = sock.recvfrom(self._largest + 1)
            except BlockingIOError:
                return None
            except OSError:  # a network error caused by an earlier send
                continue
            found = self._judge(raw, address, time.time_ns())
            if isinstance(found, Message):
                self._statistics.count(ACCEPTED)
                self._queues.count(found)
                return found
            self._statistics.count(found)
        return None

    def _judge(self, raw: bytes, address: tuple[Any, ...], received_ns: int) -> Message | int:
        """The message in a datagram, or the verdict that drops it."""
        try:
            if len(raw) > self._largest:
                raise BadDatagram("oversize")
            src, seq, chan, payload = bccn1.read_body(self._checker.verified_body(raw))
        except BadDatagram as bad:
            return NUMBERS[bad.reason]
        form = directed_targets.form_of(chan)
        if form == directed_targets.DIRECTED and not directed_targets.matches(
            directed_targets.target_of(chan), self._name
        ):
            return NOT_ADDRESSED
        if self._remembered is not None:
            source, rest = b"%b:%b" % (address[0].encode(), src), chan
            if src == bccn1.UNKNOWN_SRC:  # many may call themselves so, and each message is a source of its own
                source = rest = b"%b:%d:%d:%b|%b" % (source, address[1], seq, chan, payload)
            if self._remembered.is_repeated(source, seq, rest, time.monotonic(), received_ns * 1e-9):
                return DUPLICATE
        peer = peer_name(address)
        return Message(to_text(src), seq, to_text(chan), payload, directed_targets.FORM_NAMES[form], peer, received_ns)

    def _read_available(self) -> int:
        """Take everything that is there into the queues; how many messages it was."""
        for count in range(MAX_TAKEN):
            message = self._read()
            if message is None:
                return count
            self._queues.put(message)
        return MAX_TAKEN


def _check(check: Callable[[bytes], None], field: bytes) -> None:
    try:
        check(field)
    except BadDatagram as bad:
        raise EndpointError(bad.reason, f"{to_text(field)!r}: {bad.detail}") from bad


def _signed(body: bytes, sign: Callable[[bytes], bytes]) -> bytes:
    """The datagram with a body. Raises EndpointError: too_long, no_signing_key."""
    try:
        datagram = bccn1.build(body, sign(body))
    except BadMessage as bad:
        raise EndpointError(bad.reason, bad.detail) from bad
    if len(datagram) > bccn1.MAX_SEND:
        raise EndpointError("too_long", f"{len(datagram)} bytes, and a datagram has at most {bccn1.MAX_SEND}")
    return datagram
