#!/usr/bin/env python3
"""A subscriber of the TCP broker: prints IP:PORT - TOPIC - TYPE - VALUE for each message, or JSON.

    python3 subscriber.py 127.0.0.1:5401 --id C1 'upb/*'
    python3 subscriber.py 127.0.0.1:5401 --id C1 --json -n 1 -t 10 'upb/+/elevator'

``+`` is one level of a topic, ``*`` any number of them. The broker keeps subscriptions: an ID that comes back has them
again. Lines on standard input change them: ``subscribe TOPIC``, ``unsubscribe TOPIC``, ``exit``. It uses nothing but
Python's standard library, and serves with any broker of this protocol: docs/broker.md.
"""

import argparse
import json
import os
import select
import socket
import struct
import sys
import time

MESSAGE = struct.Struct("!50s51sB1501s")
TYPES = ["INT", "SHORT_REAL", "FLOAT", "STRING"]
REQUESTS = {"subscribe": 0, "unsubscribe": 1, "exit": 2}


def text_of(field: bytes) -> str:
    """A field up to its first NUL; bytes that a terminal could take for commands are escaped."""
    text = field.partition(b"\0")[0].decode("utf-8", "backslashreplace")
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def value_of(kind: int, data: bytes) -> str:
    """A value as exact text: it never becomes a binary fraction."""
    if kind == 3:
        return text_of(data)
    if kind == 1:
        sign, value, decimals = 0, *struct.unpack_from("!H", data), 2
    else:
        sign, value, decimals = struct.unpack_from("!BIB", data)
        decimals = decimals if kind == 2 else 0
    digits = str(value).rjust(decimals + 1, "0")
    number = f"{digits[:-decimals]}.{digits[-decimals:]}" if decimals else digits
    return f"-{number}" if sign and value else number


def show(message: bytes, as_json: bool) -> str:
    peer, topic, kind, data = MESSAGE.unpack(message)
    if kind >= len(TYPES):
        raise SystemExit("this is no broker: a message has an unknown type")
    fields = {"peer": text_of(peer), "topic": text_of(topic), "type": TYPES[kind], "value": value_of(kind, data)}
    return json.dumps(fields) if as_json else " - ".join(fields.values())


def request(word: str, topic: str) -> bytes:
    """A request to the broker, which has 52 bytes. Raises ValueError."""
    name = os.fsencode(topic)
    if word not in REQUESTS or bool(name) != (word != "exit") or len(name) > 50 or b"\0" in name:
        raise ValueError(f"'{word} {topic}' is no command: subscribe TOPIC, unsubscribe TOPIC, exit; up to 50 bytes")
    return bytes([REQUESTS[word]]) + name.ljust(51, b"\0")


def send_commands(sock: socket.socket) -> bool:
    """Send what standard input asks for; False at its end. Complete lines are expected, as terminals give them."""
    data = os.read(0, 65_536)
    for line in os.fsdecode(data).splitlines():
        word, _, topic = line.strip().partition(" ")
        try:
            sock.sendall(request(word, topic.strip()) if word else b"")
        except ValueError as error:
            print(error, file=sys.stderr)
    return bool(data)


def receive(sock: socket.socket, count: int, deadline: float, as_json: bool) -> int:
    """Print messages until there were ``count`` of them (0: for ever), or it is too late; how many there were."""
    waiting, printed = b"", 0
    inputs: list[socket.socket | int] = [sock, 0]
    while not count or printed < count:
        left = deadline - time.monotonic()
        ready = select.select(inputs, [], [], None if left == float("inf") else max(0.0, left))[0]
        if not ready and left <= 0:
            break
        if 0 in ready and not send_commands(sock):
            inputs = [sock]
        if sock in ready:
            data = sock.recv(65_536)
            if not data:
                raise SystemExit("the broker has closed the connection: is another one connected with this id?")
            waiting += data
        while len(waiting) >= MESSAGE.size and (not count or printed < count):
            print(show(waiting[: MESSAGE.size], as_json), flush=True)
            waiting = waiting[MESSAGE.size :]
            printed += 1
    return printed


def main() -> None:
    parser = argparse.ArgumentParser(description="Print what a broker has for a subscriber.")
    parser.add_argument("broker", metavar="HOST:PORT")
    parser.add_argument("topics", nargs="*", metavar="TOPIC")
    parser.add_argument("--id", required=True, help="up to 10 bytes, and of no other subscriber")
    parser.add_argument("--json", action="store_true", help="print an object a line")
    parser.add_argument("-n", "--count", type=int, default=0, help="end after so many messages")
    parser.add_argument("-t", "--timeout", type=float, default=float("inf"), help="end after so many seconds")
    given = parser.parse_intermixed_args()
    name, (host, _, port) = os.fsencode(given.id), given.broker.rpartition(":")
    if not 0 < len(name) < 11 or not port.isdigit():
        parser.error("give HOST:PORT, and an id of 1 to 10 bytes")
    deadline = time.monotonic() + given.timeout
    with socket.create_connection((host.strip("[]"), int(port)), 10) as sock:
        sock.sendall(name.ljust(11, b"\0") + b"".join(request("subscribe", topic) for topic in given.topics))
        printed = receive(sock, given.count, deadline, given.json)
    raise SystemExit(1 if printed < given.count else 0)


if __name__ == "__main__":
    main()
