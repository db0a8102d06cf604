"""A daemon with trouble, for its status page; run as a program, it takes the pictures docs/status-*.png."""

from __future__ import annotations

import io
import random
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from tests.browser import Browser
from tests.e2e.harness import KEY, Daemon, Wire, datagram
from tests.support import ROOT, free_port

#: seconds between two rounds of traffic
ROUND: Final = 0.1
#: minutes of traffic before the pictures are taken
MINUTES: Final = 20
_FLEET: Final = (
    ("relay02/cardsysd/811", "cardsys/door/{}/badge", 9),
    ("relay02/sensord/1204", "sensor/temperature/{}", 30),
    ("relay03/cardsysd/790", "cardsys/door/{}/badge", 6),
    ("relay03/sensord/1188", "sensor/humidity/{}", 14),
    ("gate01/barrier/455", "gate/lane/{}", 4),
    ("gate02/barrier/462", "gate/lane/{}", 3),
    ("plc07/linewatch/77", "line/7/status", 22),
    ("cam01/motion/3120", "alarm/motion/{}", 1),
)


class Fleet:
    """Other hosts of the segment, which send until `close`. ``trouble`` may be set at any time."""

    def __init__(self, daemon: Daemon, *, trouble: bool = True) -> None:
        self.trouble = trouble
        self._daemon = daemon
        self._wire = Wire(daemon.port)
        self._seqs = {src: 1_000_000 for src, _, _ in _FLEET}
        self._chance = random.Random(7)
        self._over = threading.Event()
        self._rounds = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        began = time.monotonic()
        while not self._over.wait(max(0.0, began + self._rounds * ROUND - time.monotonic())):
            self._round(self._rounds)
            self._rounds += 1

    def _round(self, number: int) -> None:
        silent = "gate02" if self.trouble and number > 60 else "none"
        for src, chan, count in _FLEET:
            if src.startswith(silent):
                continue
            wave = 1 + 0.6 * abs((number % 900) / 450 - 1)
            for place in range(round(count * wave)):
                self._send(src, chan.format(place % 5 + 1), b'{"value": 21.5}')
            if number % 20 == 0:
                self._send(src, f"heartbeat/{src}", b"")
        if self.trouble and number % 7 == 0:
            forged = datagram("relay02/cardsysd/811", 9_000_000 + number, "cardsys/door/1/open", b"now", b"x" * 32)
            self._wire.send(forged)
        if self.trouble and number % 300 == 0:
            self._wire.send(b"M-SEARCH * HTTP/1.1\r\n")

    def _send(self, src: str, chan: str, payload: bytes) -> None:
        self._seqs[src] += 1
        # A bad cable on the way of one host.
        if self.trouble and src.startswith("plc07") and self._chance.random() < 0.004:
            return
        one = datagram(src, self._seqs[src], chan, payload, KEY)
        self._wire.send(one)
        if chan.startswith("alarm/"):
            self._wire.send(one)

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._wire.sock.close()


def settings(folder: Path, daemon: Daemon) -> dict[str, Any]:
    return {
        "segments": [{**daemon.settings["segments"][0], "name": "plant"}],
        "integrity": daemon.with_key(KEY),
        "heartbeat": {"interval": "2s", "dead_after": 150},
        "bus": {"queue": {"messages": 512, "bytes": "1MiB"}},
        "metrics": {"groups": {"cards": "cardsys/"}},
        "gateways": {
            "broker": {name: f"127.0.0.1:{free_port()}" for name in ("tcp", "udp")} | {"state": str(folder / "broker")}
        },
    }


#: programs of this host, and what they subscribe to; the last one does not read
_READERS: Final = (("doorlog", "cardsys/"), ("thermod", "sensor/"), ("archive", ""), ("panel", "line/"))
_READER: Final = """
import sys, time
open("/proc/self/comm", "w").write(sys.argv[2])
import bccnd
with bccnd.connect(sys.argv[1]) as bus:
    bus.subscribe(sys.argv[3])
    bus.sync(10)
    print("here", flush=True)
    if sys.argv[2] == "panel":
        time.sleep(1e6)
    for _ in bus:
        pass
"""


def readers(daemon: Daemon, stack: ExitStack) -> None:
    """Programs of this host: some that read, and one that does not."""
    for name, pattern in _READERS:
        command = [sys.executable, "-c", _READER, str(daemon.bus), name, pattern]
        process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
        stack.callback(process.kill)
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"


def main() -> None:
    from PIL import Image

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bccnd-scene-")))
        daemon = stack.enter_context(Daemon(folder / "a", start=False))
        daemon.configure(settings(folder, daemon))
        daemon.start()
        print(f"{daemon.url}/ for {MINUTES} minutes", flush=True)
        fleet = Fleet(daemon, trouble=False)
        stack.callback(fleet.close)
        readers(daemon, stack)
        time.sleep(MINUTES * 50)
        fleet.trouble = True
        time.sleep(MINUTES * 10)
        browser = stack.enter_context(Browser())
        for name, width, height in (("light", 1280, 1000), ("dark", 1280, 1000), ("phone", 390, 844)):
            browser.look(width, height, dark=name == "dark")
            browser.go(f"{daemon.url}/")
            browser.until(lambda: browser.see("document.getElementById('sentence') !== null"), "the data")
            # With as few colours as it needs.
            picture = Image.open(io.BytesIO(browser.picture())).convert("RGB").quantize(128)
            picture.save(ROOT / f"docs/status-{name}.png", "PNG", optimize=True)


if __name__ == "__main__":
    main()
