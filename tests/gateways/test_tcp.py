"""What the kernel is told about connections that a library has opened."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack

from bccnd.gateways.tcp import connections, hasten


def repeats(sock: socket.socket) -> int:
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_SYNCNT)


def test_only_what_is_being_dialled_is_given_up_sooner() -> None:
    with ExitStack() as closing:
        listener = closing.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        place = listener.getsockname()
        dialled = [closing.enter_context(socket.socket()) for _ in range(4)]
        for sock in dialled:  # there is room for one; the others get no answer
            sock.setblocking(False)
            sock.connect_ex(place)
        before = repeats(dialled[0])
        hasten()
        assert repeats(dialled[0]) == before != 2
        assert repeats(dialled[-1]) == 2
        seen = {one.peer for one in connections() if one.local == f"127.0.0.1:{dialled[0].getsockname()[1]}"}
        assert seen == {f"127.0.0.1:{place[1]}"}
        waiting = {f"127.0.0.1:{sock.getsockname()[1]}" for sock in dialled[-1:]}
        assert not waiting & {one.local for one in connections()}


def test_a_connection_that_was_closed_meanwhile_has_no_flow() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as client:
        for found in connections():
            if found.peer and found.local == "{}:{}".format(*client.getsockname()):
                assert found.flow() is not None
                os.close(client.detach())
                assert found.flow() is None
                break
        else:
            raise AssertionError
