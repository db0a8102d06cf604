"""The event loop: calls back for descriptors (epoll), timers and signals, in one thread.

Invariant: callbacks never block. No event reaches the handler of a descriptor that was watched after the event: a
descriptor may be closed in the middle of a round, and its number used again.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import os
import select
import signal
from collections.abc import Callable
from typing import Final

from bccnd import log
from bccnd.native.system import clock
from bccnd.native.system.poller import Poller

READABLE: Final = select.EPOLLIN
WRITABLE: Final = select.EPOLLOUT
#: the peer will send no more, but may still read
HALF_CLOSED: Final = select.EPOLLRDHUP
GONE: Final = select.EPOLLHUP | select.EPOLLERR
#: seconds until the kernel is asked again to watch a descriptor
RETRY: Final = 0.1
#: the system lacks descriptors, memory or watches (fs.epoll.max_user_watches) for a while
EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ENOSPC)


def first_served(rounds: int, count: int) -> int:
    """Return which of ``count`` descriptors a round begins with.

    It is the fraction of rounds times the golden ratio: where a user is served in every third round only, for instance,
    each of its clients has its turn too.
    """
    return ((rounds & 0xFFFFFFFF) * 0x61C88647 & 0xFFFFFFFF) * count >> 32


class Timer:
    """A scheduled call."""

    __slots__ = ("call", "when")

    def __init__(self, when: float, call: Callable[[], object]) -> None:
        self.when = when
        self.call: Callable[[], object] | None = call

    def cancel(self) -> None:
        self.call = None

    def __lt__(self, other: Timer) -> bool:
        return self.when < other.when


class Handler:
    """Handles the events of a descriptor; compiled ones are called without Python objects."""

    def on_events(self, events: int) -> None:
        raise NotImplementedError


class _Callback(Handler):
    """Calls a function."""

    def __init__(self, call: Callable[[int], None]) -> None:
        self._call = call

    def on_events(self, events: int) -> None:
        self._call(events)


class Loop:
    """Watches descriptors, timers and signals until `stop`."""

    def __init__(self) -> None:
        self._poller = Poller()
        #: by descriptor
        self._handlers: list[Handler | None] = []
        #: events of descriptors that the kernel had no memory to watch
        self._unregistered: dict[int, int] = {}
        self._timers: list[Timer] = []
        self._soon: list[Callable[[], None]] = []
        #: descriptors that are read once more at the end of this round
        self._again: tuple[int, ...] = ()
        self._signals: dict[int, Callable[[], None]] = {}
        self._running = False
        #: number of rounds
        self.rounds = 0
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self.watch(self._wake_read, READABLE, self._on_wake)

    def watch(self, fd: int, events: int, handler: Handler | Callable[[int], None]) -> None:
        """Call a handler for events of a descriptor; from later on if the kernel has no memory for that now."""
        try:
            self._poller.register(fd, events)
        except OSError as error:
            if error.errno not in EXHAUSTED:
                raise
            if not self._unregistered:
                self.later(RETRY, self._register_rest)
            self._unregistered[fd] = events
        if fd >= len(self._handlers):
            self._handlers.extend([None] * (fd + 1 - len(self._handlers)))
        self._handlers[fd] = handler if isinstance(handler, Handler) else _Callback(handler)

    def change(self, fd: int, events: int) -> None:
        """Change the events of a watched descriptor; others are ignored."""
        if fd in self._unregistered:
            self._unregistered[fd] = events
        elif self.watches(fd):
            self._poller.modify(fd, events)

    def watches(self, fd: int) -> bool:
        return 0 <= fd < len(self._handlers) and self._handlers[fd] is not None

    def unwatch(self, fd: int) -> None:
        if self.watches(fd):
            self._handlers[fd] = None
            if self._unregistered.pop(fd, None) is None:
                self._poller.unregister(fd)

    def _register_rest(self) -> None:
        """Register descriptors for which there was no memory before."""
        for fd, events in list(self._unregistered.items()):
            try:
                self._poller.register(fd, events)
            except OSError as error:
                log.event(
                    "out_of_descriptors",
                    f"the kernel cannot watch more descriptors: {error.strerror}; {len(self._unregistered)} wait",
                    remedy="raise fs.epoll.max_user_watches (sysctl), or find out what takes the memory (slabtop)",
                    error=errno.errorcode.get(error.errno or 0, "unknown"),
                )
                self.later(RETRY, self._register_rest)
                return
            del self._unregistered[fd]

    def later(self, seconds: float, call: Callable[[], object]) -> Timer:
        timer = Timer(clock.monotonic() + seconds, call)
        heapq.heappush(self._timers, timer)
        return timer

    def every(self, seconds: float, call: Callable[[], None]) -> None:
        """Call repeatedly, ``seconds`` after the end of the previous call."""

        def run_and_reschedule() -> None:
            call()
            self.later(seconds, run_and_reschedule)

        self.later(seconds, run_and_reschedule)

    def soon(self, call: Callable[[], None]) -> None:
        """Call at the end of the current round."""
        self._soon.append(call)

    def again(self, fds: tuple[int, ...]) -> None:
        """Have these handlers, instead of those of an earlier call, look at the end of the current round whether
        something has arrived, which then wakes nothing: they get the event 0."""
        self._again = fds

    def on_signal(self, number: int, call: Callable[[], None]) -> None:
        """Call from the loop when a signal has arrived."""
        self._signals[number] = call
        signal.signal(number, lambda _number, _frame: None)

    def _on_wake(self, _events: int) -> None:
        with contextlib.suppress(BlockingIOError):
            for number in os.read(self._wake_read, 64):
                if number in self._signals:
                    self._signals[number]()

    def stop(self) -> None:
        self._running = False

    def run(self) -> None:
        """Serve until `stop` is called."""
        self._running = True
        poller = self._poller
        while self._running:
            self.rounds += 1
            count = poller.wait(self._timeout())
            # The kernel lists descriptors in the same order each time. Beginning elsewhere in each round lets the last
            # ones be served too where a round's time is used up before.
            number = first_served(self.rounds, count) if count > 1 else 0
            for _ in range(count):
                events = poller.events(number)
                handler = self._handlers[poller.fd(number)] if events else None
                if handler is not None:
                    handler.on_events(events)
                number = number + 1 if number + 1 < count else 0
            if self._timers:
                self._run_timers()
            while self._soon:
                calls, self._soon = self._soon, []
                for call in calls:
                    call()
            if self._again:
                fds, self._again = self._again, ()
                for fd in fds:
                    handler = self._handlers[fd] if self.watches(fd) else None
                    if handler is not None:
                        handler.on_events(0)

    def _timeout(self) -> float:
        if self._soon:
            return 0.0
        if not self._timers:
            return -1.0
        timer = self._timers[0]
        seconds = timer.when - clock.monotonic()
        # The kernel waits for 24 days at most.
        return 0.0 if seconds < 0.0 else min(seconds, 3600.0)

    def _run_timers(self) -> None:
        now = clock.monotonic()
        timer = self._timers[0]
        if timer.when > now:
            return
        # Timers that they arm wait for a later round, whatever the time is then.
        due = []
        while self._timers and self._timers[0].when <= now:
            due.append(heapq.heappop(self._timers))
        for timer in due:
            if timer.call is not None:
                timer.call()

    def close(self) -> None:
        """Make the calls that are due soon, and release everything."""
        while self._soon:
            self._soon.pop(0)()
        signal.set_wakeup_fd(-1)
        self._poller.close()
        os.close(self._wake_read)
        os.close(self._wake_write)
