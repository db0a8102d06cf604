"""Faults that were found by reading once, each as the change of a source that puts it back.

The simulation has to find each of them. A change whose place is gone is an error: then say here how the fault would
come back today.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools import changed_package
from tools.changed_package import Change
from tools.simulate import interposer


@dataclass(frozen=True)
class KnownFault:
    """A fault, and the changes that put it back."""

    name: str
    what: str
    changes: tuple[Change, ...]


def _fault(name: str, what: str, *changes: tuple[str, str, str]) -> KnownFault:
    """``changes`` are in modules of the package."""
    return KnownFault(name, what, tuple(Change(f"bccnd/{module}", old, new) for module, old, new in changes))


_RATE: Final = """        self._block(client, packet, retry, "rate")

        def again() -> None:
            if client.resume is not None and self._quota.publish(client.account, time.monotonic()):
                self._queues.counters.held.add("rate")
                self._loop.later(1 / self._quota.limits.rate, again)
            elif client.resume is not None:
                self._resume_all([client])

        self._loop.later(0.0, again)
"""

_ALL: Final = (
    _fault(
        "stop_drains",
        "a stop reads a socket that outlives the process, faster than clients read",
        ("daemon/daemon.py", "while not segment.passed and time.monotonic()", "while time.monotonic()"),
    ),
    _fault(
        "heard_backward",
        "the time at which a source was last heard moves backward, when a datagram waited in a link",
        ("core/tracking/dedup.py", "if now > source.heard:", "if True:"),
    ),
    _fault(
        "frozen_cycle",
        "the record of a client that has gone stays in frozen memory, through a cycle",
        (
            "handover/descriptor_store.py",
            "        self.grown = self.failed = _ignore\n        fd, self.fd",
            "        fd, self.fd",
        ),
    ),
    _fault(
        "queues_left_out",
        "the image has no queues",
        ("bus/client_handover.py", "entries = list(client.queue)", "entries: list[bytes | int] = []"),
    ),
    _fault(
        "sources_left_out",
        "the image has no sources",
        ("core/tracking/tracker_image.py", "    sweep = sources.table.oldest_first()\n", "    sweep = iter(())\n"),
    ),
    _fault(
        "requests_not_recorded",
        "what a client asks for later is not in its record",
        (
            "handover/descriptor_store.py",
            "            self._write(_LENGTH.pack(len(frame)) + frame)\n",
            "            pass\n",
        ),
    ),
    _fault(
        "image_read_twice",
        "an image stays in the descriptor store once a daemon serves from it",
        (
            "handover/descriptor_store.py",
            "        for fd in self._images:\n            os.ftruncate(fd, 0)",
            "        for fd in ():\n            os.ftruncate(fd, 0)",
        ),
        ("handover/descriptor_store.py", "            if fds:\n", "            if fds and name != _IMAGE:\n"),
    ),
    _fault(
        "ceiling_not_raised",
        "numbers are used that the record of the host does not reserve",
        ("core/sending/egress.py", "            self._reserve(self._reserved)\n", "            pass\n"),
    ),
    _fault(
        "crash_not_told",
        "clients are not told that a crash may have lost messages for them",
        (
            "bus/client_handover.py",
            "                if self._after_crash:\n",
            "                if False:\n",
        ),
    ),
    _fault(
        "own_delivered_again",
        "after a crash a host takes its own datagrams for those of another one",
        ("daemon/daemon.py", "            self.ingress.own_until_ns = time.time_ns()\n", "            pass\n"),
    ),
    _fault(
        "interned_receivers",
        "the receivers of routes that have gone stay shared",
        ("core/matching/routes.py", "Receivers] = WeakValueDictionary()", "Receivers] = {}"),
    ),
    _fault(
        "interface_not_watched",
        "a segment is deaf once its interface was deleted and made anew",
        ("daemon/daemon.py", "        watch_interfaces(loop, self.segments, self._readers, self._watch)\n", ""),
    ),
    _fault(
        "child_waited_for",
        "an event of a child that was replaced in this round waits for the end of its successor",
        ("native/system/poller.pyx", "self._events[number].events = 0", "pass"),
        ("net/process_supervisor.py", "status = _reap(self._pid)", "status = os.waitpid(self._pid, 0)[1]"),
    ),
    _fault(
        "slow_copies",
        "copies under a slow rule hold back those of a fast one",
        ("net/transmitter.py", "(not self._timers or due < self._timers[-1])", "not self._timers"),
    ),
    _fault(
        "rate_wakes_all",
        "each token of a user's rate wakes all its waiting publishers",
        (
            "bus/incoming/backpressure.py",
            """        self._block(client, packet, retry, "rate")
        account = client.account
        account.waiting[client] = None
        if account.timer is None:
            self._resume_later(account, 0.0)
""",
            _RATE,
        ),
    ),
    _fault(
        "watch_refused",
        "a descriptor that the kernel has no memory to watch ends a client, or the daemon",
        ("net/loop.py", "if error.errno not in EXHAUSTED:", "if True:"),
    ),
    _fault(
        "report_of_others",
        "a report is believed about sources of another host",
        ("fleet/report_format.py", """if any(run.src.partition("/")[0] != host for run in sent):""", "if False:"),
    ),
    _fault(
        "outdated_for_good",
        "a new daemon with the pid of the one before is not believed while its clock is behind",
        ("fleet/matrix.py", "if earlier and (row.reports(now) or seq == row.last[1]):", "if earlier:"),
    ),
    _fault(
        "reload_unsigned",
        "a reload that takes away the signing key fails when it is half applied",
        ("daemon/daemon.py", "        if not rules.report_interval:  # the last", "        if False:  # the last"),
        ("bus/host_reports.py", "        except BadMessage as bad:\n            self._count_refused(bad.reason)\n", ""),
    ),
    _fault(
        "trace_of_gone",
        "a trace meets a client whose patterns are being removed, and ends its own client",
        ("bus/clients/receiver_listing.py", "receivers = routes.present(found)", "receivers = tuple(found)"),
    ),
)

FAULTS: Final = {one.name: one for one in _ALL}


def build(fault: KnownFault) -> Path:
    """Return a folder with the package in which a fault is back."""
    return changed_package.build(interposer.ROOT / "build" / "simulate" / fault.name, fault.changes)
