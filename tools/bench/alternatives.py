"""What parts written by hand cost, beside the library that could do it: `python -m tools.bench.alternatives`.

Nanoseconds for one event, datagram or check; the least of some rounds.
"""

from __future__ import annotations

import asyncio
import hmac
import socket
import time
from collections.abc import Callable
from typing import Final

import click

from bccnd.native.buffers.hmac8 import Hmac8
from bccnd.native.system.sockio import BATCH, Receiver
from bccnd.net.loop import READABLE, Loop

ROUNDS: Final = 7
EVENTS: Final = 20_000
BODY: Final = b"relay02/sensor/77:1:demo/t1|".ljust(150, b"x")
KEY: Final = b"a key of thirty-two bytes, or so"


def least(once: Callable[[], float]) -> float:
    return min(once() for _ in range(ROUNDS))


def by_loop() -> float:
    """An event of the daemon's loop: read a byte and write the next."""
    loop = Loop()
    ours, theirs = socket.socketpair()
    left = EVENTS

    def on_byte(_events: int) -> None:
        nonlocal left
        ours.recv(1)
        left -= 1
        if left:
            theirs.send(b"x")
        else:
            loop.stop()

    loop.watch(ours.fileno(), READABLE, on_byte)
    began = time.perf_counter_ns()
    theirs.send(b"x")
    loop.run()
    spent = time.perf_counter_ns() - began
    loop.close()
    ours.close()
    theirs.close()
    return spent / EVENTS


def by_asyncio() -> float:
    """The same with asyncio's `add_reader`."""

    async def serve() -> float:
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        ours, theirs = socket.socketpair()
        left = EVENTS

        def on_byte() -> None:
            nonlocal left
            ours.recv(1)
            left -= 1
            if left:
                theirs.send(b"x")
            else:
                done.set_result(None)

        loop.add_reader(ours, on_byte)
        began = time.perf_counter_ns()
        theirs.send(b"x")
        await done
        spent = time.perf_counter_ns() - began
        loop.remove_reader(ours)
        ours.close()
        theirs.close()
        return spent / EVENTS

    return asyncio.run(serve())


def receiving(receive: Callable[[socket.socket], Callable[[], int]]) -> float:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ours,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as theirs,
    ):
        ours.bind(("127.0.0.1", 0))
        ours.setblocking(False)
        read = receive(ours)
        spent = 0
        for _ in range(EVENTS // BATCH):
            for _ in range(BATCH):
                theirs.sendto(BODY, ours.getsockname())
            began = time.perf_counter_ns()
            left = BATCH
            while left:
                left -= read()
            spent += time.perf_counter_ns() - began
        return spent / (EVENTS // BATCH * BATCH)


def by_recvmmsg() -> float:
    def receive(sock: socket.socket) -> Callable[[], int]:
        receiver = Receiver(sock.fileno(), 1500, 16)
        return lambda: len(receiver.receive())

    return receiving(receive)


def by_recvfrom() -> float:
    return receiving(lambda sock: lambda: len(sock.recvfrom(1501)) // 2)


def checking(check: Callable[[], object]) -> float:
    began = time.perf_counter_ns()
    for _ in range(EVENTS):
        check()
    return (time.perf_counter_ns() - began) / EVENTS


def by_keyed() -> float:
    keyed = Hmac8(KEY)
    raw = keyed.sum(BODY) + b"]" + BODY
    assert keyed.verify_at(raw, 0, 16)
    return checking(lambda: keyed.verify_at(raw, 0, 16))


def by_hmac() -> float:
    raw = Hmac8(KEY).sum(BODY)
    return checking(lambda: hmac.compare_digest(raw, hmac.digest(KEY, BODY, "sha256")[:8].hex().encode()))


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Measure them, one after the other, on a quiet machine."""
    for name, once in (
        ("event loop: ours", by_loop),
        ("event loop: asyncio", by_asyncio),
        ("datagram: recvmmsg", by_recvmmsg),
        ("datagram: recvfrom", by_recvfrom),
        ("HMAC: state of the key copied", by_keyed),
        ("HMAC: hmac.digest", by_hmac),
    ):
        click.echo(f"{name:<32}{least(once):>8,.0f} ns")


if __name__ == "__main__":
    main()
