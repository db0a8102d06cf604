"""Packets that are received with one system call."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator

import pytest

from bccnd.native.system.packet_batch import PacketBatch
from tests.endpoint.segments import soon

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with near, far:
        yield near, far


def test_what_is_there_is_taken_in_order_up_to_a_number(pair: Pair) -> None:
    near, far = pair
    batch = PacketBatch(100, 4)
    sent = [b"%d" % number for number in range(6)]
    for packet in sent:
        far.send(packet)
    assert [batch.receive(near.fileno(), 1, False), batch.receive(near.fileno(), 9, True)] == [sent[:1], sent[1:5]]
    assert batch.receive(near.fileno(), 4, False) == sent[5:]
    with pytest.raises(BlockingIOError):
        batch.receive(near.fileno(), 4, False)


def test_the_end_is_one_empty_packet_behind_the_others(pair: Pair) -> None:
    near, far = pair
    far.send(b"last")
    far.close()
    assert PacketBatch(100, 8).receive(near.fileno(), 8, True) == [b"last", b""]
    with pytest.raises(OSError, match="descriptor"):
        PacketBatch(100, 8).receive(-1, 8, True)


def test_a_signal_ends_the_wait_and_its_handler_may_raise(pair: Pair) -> None:
    near, far = pair
    calls: list[int] = []
    waiting = threading.get_ident()
    before = signal.signal(signal.SIGUSR1, lambda number, _frame: calls.append(number))
    try:
        with soon(lambda: signal.pthread_kill(waiting, signal.SIGUSR1)), soon(lambda: far.send(b"x"), 0.5):
            batch = PacketBatch(100, 2)
            while not (got := batch.receive(near.fileno(), 2, True)):
                assert calls
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert (got, calls) == ([b"x"], [signal.SIGUSR1])
