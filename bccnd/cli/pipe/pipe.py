"""`bccn pipe`: starts the parts, and ends when its input or its daemon does."""

from __future__ import annotations

import asyncio
import errno
import sys
import time
from typing import Final

import click

from bccnd.cli.pipe.operation_runner import OperationRunner
from bccnd.cli.pipe.stream_threads import LineReader, LineWriter
from bccnd.cli.shared.connection import explain, explain_unreachable
from bccnd.cli.shared.output import NO_DAEMON, fail
from bccnd.client.event_queues import Refusal
from bccnd.client.session import PATIENCE
from bccnd.client.transport import unreachable, usual_path
from bccnd.errors import BusError

#: bytes of answers that nobody reads before no more lines are taken
_MOST_UNREAD: Final = 4 << 20


class _Pipe:
    """Connects standard input and output with the bus. ``failure`` is why it had to end, with the exit code."""

    def __init__(self, path: str, program: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._over = self._loop.create_future()
        self._output = LineWriter(1, self._loop, self._on_room, self._end)
        self._runner = OperationRunner(
            path,
            program,
            write=self._output.write,
            has_room=lambda: not self._output.is_full,
            on_refused=self._on_refused,
            on_idle=self._read_on,
        )
        self._input: LineReader | None = None
        self._paused = False

    async def run(self, path: str) -> None:
        """Raises BusError; OSError where the output is closed."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self._runner.connect()
                break
            except OSError as error:
                if error.errno != errno.EAGAIN or time.monotonic() > deadline:  # its backlog may be full
                    raise unreachable(path, error) from error
                await asyncio.sleep(0.01)
        self._input = LineReader(0, self._loop, self._on_lines)
        try:
            await self._over
        finally:
            self._runner.close()
        await asyncio.to_thread(self._output.close)
        if self._output.error is not None:
            raise self._output.error

    def _end(self, error: Exception | None = None) -> None:
        if not self._over.done():
            if error is None:
                self._over.set_result(None)
            else:
                self._over.set_exception(error)

    def _on_lines(self, lines: list[bytes] | None) -> None:
        if self._over.done():
            return
        if lines is None:
            self._runner.finish(self._end, self._end)
            return
        for line in lines:
            self._runner.feed(line)
        self._paused = True
        self._read_on()

    def _read_on(self) -> None:
        if self._paused and self._input is not None and not self._runner.is_busy and self._output.size < _MOST_UNREAD:
            self._paused = False
            self._input.resume()

    def _on_room(self) -> None:
        if not self._over.done():
            self._runner.resume()
            self._read_on()

    def _on_refused(self, refusal: Refusal) -> None:
        self._end(RefusedError(refusal))


class RefusedError(Exception):
    """The daemon does not serve this program."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.reason)
        self.refusal = refusal


async def _run(path: str, program: str) -> None:
    await _Pipe(path, program).run(path)


@click.command()
@click.option("--program", metavar="NAME", help="Use the identity <host>/bccn/<pid>/NAME.")
@click.pass_obj
def pipe(path: str | None, /, program: str | None) -> None:
    """Carry messages for another program, as lines of JSON on standard input and output.

    \b
      {"op": "subscribe", "pattern": "demo/", "id": 1}
      {"op": "publish", "chan": "demo/hello", "payload": "hello, world", "id": 2}

    is answered by

    \b
      {"event": "done", "id": 1}
      {"event": "message", "chan": "demo/hello", "src": ..., "seq": ..., "payload": "hello, world", ...}
      {"event": "done", "id": 2}

    The operations are subscribe, unsubscribe, publish, send_to, send_all, sync and whoami. docs/pipe.md describes every
    field and has programs in several languages.

    While the daemon is away, bccn pipe keeps running; then it restores the subscriptions. Exit codes: 0 the input has
    ended, and everything is published and answered; 1 the daemon refused the connection or NAME; 4 no daemon ran at the
    start, or at the end of the input.
    """
    address = path or usual_path()
    try:
        asyncio.run(_run(address, program or ""))
    except RefusedError as refused:
        fail(explain(refused.refusal))
    except BusError as error:
        fail(explain_unreachable(error), NO_DAEMON)
    except KeyboardInterrupt:
        sys.exit(1)
