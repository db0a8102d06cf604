#!/usr/bin/env python3
# answer.py - publishes its identity on the channel that each message on demo/question names.
#   python3 ./answer.py /run/bccnd/bus.sock
#   bccn pub demo/question demo/answer
# When the daemon restarts, it reconnects and subscribes again.
import sys

import bccnd


def main(path: str) -> int:
    try:
        with bccnd.connect(path, away=True) as bus:
            identity = bus.identity()
            print(f"I am {identity}", flush=True)
            bus.subscribe("demo/question")
            while True:
                match bus.receive():
                    case bccnd.Message(src=src, chan="demo/question") as question:
                        print(f"{src} asks on {question.text}", flush=True)
                        bus.publish(question.text, identity)
                    case bccnd.Refusal(reason=reason, key=key):
                        print(f"refused: {reason} {key}", file=sys.stderr, flush=True)
                    case bccnd.Gap(lost=0):
                        print("messages may have been lost here: the daemon has crashed", file=sys.stderr)
                    case bccnd.Gap(lost=lost):
                        print(f"{lost} messages were lost here: this reader is too slow", file=sys.stderr)
                    case bccnd.Away() | bccnd.Reconnected() as event:
                        print(f"the daemon: {event}", file=sys.stderr)
    except bccnd.BusError as error:
        print(f"answer.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
