#!/usr/bin/env python3
# answer_asyncio.py - publishes its identity on the channel that each message on demo/question names; with a callback.
#   python3 ./answer_asyncio.py /run/bccnd/bus.sock
#   bccn pub demo/question demo/answer
# When the daemon restarts, it reconnects and subscribes again.
import asyncio
import sys

import bccnd
import bccnd.aio


async def answer(path: str) -> None:
    async with bccnd.aio.connect(path, away=True) as bus:
        identity = await bus.identity()
        print(f"I am {identity}", flush=True)

        async def on_question(question: bccnd.Message) -> None:
            print(f"{question.src} asks on {question.text}", flush=True)
            await bus.publish(question.text, identity)

        await bus.listen("demo/question", on_question)
        while True:
            match await bus.receive():
                case bccnd.Refusal(reason=reason, key=key):
                    print(f"refused: {reason} {key}", file=sys.stderr, flush=True)
                case bccnd.Gap(lost=0):
                    print("messages may have been lost here: the daemon has crashed", file=sys.stderr)
                case bccnd.Gap(lost=lost):
                    print(f"{lost} messages were lost here: this reader is too slow", file=sys.stderr)
                case bccnd.Away() | bccnd.Reconnected() as event:
                    print(f"the daemon: {event}", file=sys.stderr)


def main(path: str) -> int:
    try:
        asyncio.run(answer(path))
    except bccnd.BusError as error:
        print(f"answer_asyncio.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
