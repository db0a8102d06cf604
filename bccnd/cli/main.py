"""`bccn`: the commands for people.

Data goes to standard output, one record a line, and everything else to standard error. Exit codes: 0 done, 1 failed,
2 bad usage or configuration, 3 refused, 4 no daemon, 5 not in time. When the reader of the output has gone, the command
ends by SIGPIPE, as tools in C do.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from typing import Any, Final

import click

from bccnd.cli.shared import completion as completion  # bash completes as this says
from bccnd.cli.shared.lazy_group import Entry, LazyGroup, complete_files
from bccnd.cli.shared.standard_streams import make_streams_wait
from bccnd.cli.shared.stream_errors import fill_closed_streams, reported_streams
from bccnd.errors import StartError
from bccnd.paths import DEFAULT_SOCKET
from bccnd.version import VERSION

COMMANDS: Final = {
    "pub": Entry("messages.pub:pub", "Publish a message, or each line of standard input"),
    "sub": Entry("messages.sub:sub", "Print the messages whose channel matches"),
    "pipe": Entry("pipe.pipe:pipe", "Carry messages for another program, as lines of JSON"),
    "direct": Entry("messages.direct:direct", "Publish and subscribe without a daemon", socket=False),
    "tap": Entry("diagnosis.tap:tap", "Show every datagram that arrives, its verdict and its receivers"),
    "trace": Entry("diagnosis.trace:trace", "Explain how the daemon would treat a datagram"),
    "top": Entry("diagnosis.top:top", "Watch rates, losses, queues, channels and senders"),
    "clients": Entry("diagnosis.list:clients", "List the programs connected to the daemon"),
    "sources": Entry("diagnosis.list:sources", "List the senders on the segments"),
    "fleet": Entry("diagnosis.fleet:fleet", "Show which host loses messages from which sender"),
    "gateways": Entry("diagnosis.list:gateways", "List the gateways of this host and their peers"),
    "keys": Entry("diagnosis.list:keys", "List the keys in use, and the sources that sign with each"),
    "keygen": Entry("keygen:keygen", "Make a key", socket=False),
    "doctor": Entry("diagnosis.doctor:doctor", "Examine this host, with a remedy for each fault"),
    "record": Entry("journals.record:record", "Record all datagrams to a journal"),
    "replay": Entry("journals.replay:replay", "Publish the messages of a journal or a capture again"),
    "pipeline": Entry("journals.pipeline:pipeline", "Make tables from journals and captures, on Spark", socket=False),
    "report": Entry("journals.report:report", "Make a page about arrived and lost messages", socket=False),
}


class _Bccn(LazyGroup):
    def main(self, *args: Any, **extra: Any) -> Any:
        closed = fill_closed_streams(fail=True)
        make_streams_wait()
        with reported_streams(closed):
            return super().main(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            try:
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()
        except StartError as error:  # a command that serves, in the pure package
            from bccnd.cli.shared.output import fail

            fail(str(error))
        except BrokenPipeError:
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGPIPE])
            os.kill(os.getpid(), signal.SIGPIPE)
            raise


@click.group(
    cls=_Bccn, entries=COMMANDS, context_settings={"help_option_names": ["-h", "--help"], "show_default": True}
)
@click.option(
    "--socket",
    "path",
    metavar="PATH",
    envvar="BCCN_SOCKET",
    shell_complete=complete_files,
    help=f"The daemon's socket; else $BCCN_SOCKET or {DEFAULT_SOCKET}.",
)
@click.version_option(VERSION, message="bccn %(version)s")
@click.pass_context
def main(context: click.Context, path: str | None) -> None:
    """Use the bccnd of this host: publish, subscribe, watch it and find faults, make keys.

    \b
      bccn sub 'demo/' &                   print messages as they arrive
      bccn pub demo/hello 'hello, world'   publish a message
      bccn top                             rates, losses, clients and senders
      bccn tap --refused                   datagrams that are not delivered, and why

    Exit codes: 0 done; 1 failed; 2 bad usage or configuration; 3 the daemon refused a request; 4 no daemon can be
    reached, or it has ended; 5 no answer, or fewer messages than -n, in time.
    """
    context.obj = path
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
