"""A Python program that subscribes or publishes by one of several libraries, with the defaults of each, and reports its
own processor time: python_client.py subscribe|publish LIBRARY WHERE COUNT BURST PAUSE.

A payload holds its number where load/message.h puts it. A publisher sends BURST messages every PAUSE seconds. With a
PAUSE, a subscriber takes BURST messages every PAUSE seconds, which is as fast as they are sent: it is always one burst
behind, works that off as a backlog, and falls no further behind.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Final

#: seconds without a message after which none is expected
IDLE: Final = 3.0
#: messages that come before the processor time is taken
WARM: Final = 500
Put = Callable[[str, bytes], Any]
CHANNELS: Final = tuple(f"bench/c{number:07d}" for number in range(16))


class Meter:
    """Counts messages, at as little cost as it can, and ends this program with a report."""

    def __init__(self, count: int, burst: int, pause: float) -> None:
        self.count, self.burst, self.pause = count, burst, pause
        self.seen = 0
        self._mark = burst if pause else WARM
        self._last = b"%09d" % (count - 1)
        self._begun = self._before = 0
        self._started = 0.0

    def add(self) -> float:
        """Count a message; return the seconds until the next burst, if there is a pause now."""
        self.seen += 1
        return self._pass_mark() if self.seen == self._mark else 0.0

    def _pass_mark(self) -> float:
        if self._begun == 0 and self.seen >= WARM:
            self._begun, self._before = time.process_time_ns(), self.seen
        self._mark = self.seen + self.burst if self.pause else 0
        self._started = self._started or time.monotonic()
        return max(0.0, self._started + self.seen / self.burst * self.pause - time.monotonic())

    def take(self, payload: bytes) -> None:
        """Take a message that was received."""
        if pause := self.add():
            time.sleep(pause)
        if payload[21:30] == self._last:
            self.end()

    def watch(self) -> None:
        """End this program when nothing comes any more: the last message may be lost."""
        before = -1
        while before != self.seen or not self.seen:
            before = self.seen
            time.sleep(IDLE)
        self.end()

    def messages(self) -> Iterator[tuple[str, bytes]]:
        for number in range(self.count):
            yield CHANNELS[number % len(CHANNELS)], b"%020d#%09d" % (0, number) + b"x" * 90

    def end(self) -> None:
        cost = (time.process_time_ns() - self._begun) / max(1, self.seen - self._before)
        print(json.dumps({"seen": self.seen, "cpu_ns": cost}), flush=True)
        os._exit(0)  # threads of some libraries would go on


def ready() -> None:
    print("ready", flush=True)


def zenoh_session(name: str, where: str) -> Any:
    zenoh: Any = import_module("zenoh")
    config = zenoh.Config()
    for key in ("listen", "connect"):
        config.insert_json5(f"{key}/endpoints", json.dumps([f"tcp/{where}"] if key == name else []))
    config.insert_json5("scouting/multicast/enabled", "false")
    return zenoh.open(config)


# -- subscribers


def subscribe_bccnd(where: str, meter: Meter) -> None:
    with import_module("bccnd").connect(where) as bus:
        messages = bus.subscribe("bench/")
        bus.sync()
        ready()
        for message in messages:
            meter.take(message.payload)


async def subscribe_bccnd_aio(where: str, meter: Meter) -> None:
    async with import_module("bccnd.aio").connect(where) as bus:
        messages = await bus.subscribe("bench/")
        await bus.sync()
        ready()
        async for message in messages:
            meter.take(message.payload)


def subscribe_redis(where: str, meter: Meter) -> None:
    found = import_module("redis").Redis(unix_socket_path=where).pubsub()
    found.psubscribe("bench/*")
    for message in found.listen():
        if message["type"] == "pmessage":
            meter.take(message["data"])
        else:
            ready()


async def subscribe_nats(where: str, meter: Meter) -> None:
    client = await import_module("nats").connect(f"nats://{where}")
    found = await client.subscribe("bench.>")
    await client.flush()
    ready()
    async for message in found.messages:
        meter.take(message.data)


def subscribe_mqtt(where: str, meter: Meter) -> None:
    client = mqtt_client(where)
    client.on_message = lambda _client, _data, message: meter.take(message.payload)
    client.on_subscribe = lambda *_arguments: ready()
    client.subscribe("bench/#")
    client.loop_forever()


def mqtt_client(where: str) -> Any:
    mqtt: Any = import_module("paho.mqtt.client")
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, transport="unix")
    client.connect(where)
    return client


def subscribe_lcm(where: str, meter: Meter) -> None:
    client = import_module("lcm").LCM(where)
    client.subscribe("bench/.*", lambda _channel, payload: meter.take(payload))
    ready()
    while True:
        client.handle()


def subscribe_zenoh(where: str, meter: Meter) -> None:
    with zenoh_session("listen", where) as session:
        found = session.declare_subscriber("bench/**")
        ready()
        for sample in found:
            meter.take(sample.payload.to_bytes())


# -- publishers: each returns the call that sends at once


def publish_bccnd(where: str) -> Put:
    put: Put = import_module("bccnd").connect(where).publish
    return put


def publish_redis(where: str) -> Put:
    put: Put = import_module("redis").Redis(unix_socket_path=where).publish
    return put


def publish_mqtt(where: str) -> Put:
    client = mqtt_client(where)
    client.loop_start()
    put: Put = client.publish
    return put


def publish_lcm(where: str) -> Put:
    put: Put = import_module("lcm").LCM(where).publish
    return put


def publish_zenoh(where: str) -> Put:
    session = zenoh_session("connect", where)
    publishers = {channel: session.declare_publisher(channel) for channel in CHANNELS}
    time.sleep(1)  # until it knows of the subscriber
    return lambda channel, payload: publishers[channel].put(payload)


def publish(put: Put, meter: Meter) -> None:
    ready()
    for channel, payload in meter.messages():
        put(channel, payload)
        if pause := meter.add():
            time.sleep(pause)
    time.sleep(0.5)
    meter.end()


async def publish_nats(where: str, meter: Meter) -> None:
    client = await import_module("nats").connect(f"nats://{where}")
    ready()
    for channel, payload in meter.messages():
        await client.publish(channel.replace("/", "."), payload)
        if pause := meter.add():
            await asyncio.sleep(pause)
    await client.flush()
    meter.end()


def main() -> None:
    role, library, where, count, burst, pause = sys.argv[1:]
    meter = Meter(int(count), int(burst), float(pause))
    program = globals()[f"{role}_{library}"]
    if role == "publish":
        if asyncio.iscoroutinefunction(program):
            asyncio.run(program(where, meter))
        publish(program(where), meter)
    threading.Thread(target=meter.watch, daemon=True).start()
    if asyncio.iscoroutinefunction(program):
        asyncio.run(program(where, meter))
    program(where, meter)


if __name__ == "__main__":
    main()
