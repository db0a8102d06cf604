#!/usr/bin/env python3
# subscribe.py - prints the messages of a pattern with their senders, as they arrive from bccnd; reports losses on
# stderr.
#   python3 ./subscribe.py /run/bccnd/bus.sock 'demo/'
# Reconnects when the daemon restarts; messages sent meanwhile do not arrive.
import os
import sys
from typing import NoReturn

import bccnd


def log(text: str) -> None:
    print(f"subscribe.py: {text}", file=sys.stderr, flush=True)


def print_events(bus: bccnd.Connection) -> NoReturn:
    while True:
        match bus.receive():
            case bccnd.Message(src=src, chan=chan, payload=payload):
                sys.stdout.buffer.write(b"%b %b %b\n" % (src.encode(), os.fsencode(chan), payload))
                sys.stdout.buffer.flush()
            case bccnd.Gap(lost=0):
                log("messages may have been lost here: the daemon has crashed")
            case bccnd.Gap(lost=lost):
                log(f"{lost} messages were lost here: this reader is too slow")
            case bccnd.Reconnected(seconds=seconds):
                log(f"{bus.path}: the daemon was away for {seconds:.1f} s")
            case bccnd.Refusal(reason=reason, key=key):
                log(f"refused: {reason} {key}")


def main() -> int:
    if len(sys.argv) != 3:
        print("usage: subscribe.py SOCKET PATTERN", file=sys.stderr)
        return 2
    path, pattern = sys.argv[1:]
    try:
        with bccnd.connect(path) as bus:
            bus.subscribe(pattern)
            print_events(bus)
    except bccnd.BusError as error:
        log(str(error))
        return 1
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
