#!/usr/bin/env python3
# publish.py - publishes one message, or each line of its input, through bccnd.
#   python3 ./publish.py /run/bccnd/bus.sock demo/hello 'hello, world'
#   printf 'one\ntwo\n' | python3 ./publish.py /run/bccnd/bus.sock demo/lines
# Exits with 0 if the daemon accepted everything, with 1 if it refused something; it reports refusals on stderr.
import os
import sys

import bccnd


def main() -> int:
    if len(sys.argv) not in (3, 4):
        print("usage: publish.py SOCKET CHANNEL [PAYLOAD]", file=sys.stderr)
        return 2
    path, channel, *payload = sys.argv[1:]
    lines = map(os.fsencode, payload) if payload else (line.removesuffix(b"\n") for line in sys.stdin.buffer)
    try:
        with bccnd.connect(path) as bus:
            for line in lines:
                bus.publish(channel, line)
            refused = bus.sync()
    except bccnd.BusError as error:
        print(f"publish.py: {error}", file=sys.stderr)
        return 1
    for refusal in refused:
        print(f"publish.py: refused: {refusal.reason} {refusal.key}", file=sys.stderr)
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
