"""The TCP broker as its publishers and subscribers know it: plain sockets on one side, a real daemon on the other."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import bccnd
from tests.e2e.brokers import Broker
from tests.e2e.harness import KEY, PATIENCE, Wire, datagram, payloads, wait
from tests.support import ROOT, cannot_here


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for all tests with usual settings; as it remembers subscriptions, each test has IDs of its own."""
    with Broker(tmp_path_factory.mktemp("broker") / "a") as one:
        yield one


@pytest.fixture
def broker(lasting: Broker) -> Iterator[Broker]:
    yield lasting
    wait(lambda: lasting.patterns() == [], "the subscribers to be gone")


VALUES: Final = [
    (0, "010000000a", b"-10"),
    (0, "0100000000", b"0"),
    (1, "097e", b"24.30"),
    (2, "00009a9c2004", b"1013.2512"),
    (2, "010000002a03", b"-0.042"),
    (3, b"twenty degrees".hex(), b"twenty degrees"),
    (3, (b"x" * 1500).hex(), b"x" * 1500),
]


def test_publications_reach_subscribers_and_the_bus(broker: Broker) -> None:
    with (
        broker.ready(b"VALUES", b"upb/room/temp") as one,
        broker.daemon.connect("upb/room/temp") as bus,
        Wire(broker.daemon.port) as wire,
    ):
        for kind, content, shown in VALUES:
            broker.publish(b"upb/room/temp", kind, bytes.fromhex(content))
            data = bytes.fromhex(content)
            fields = (broker.address.ljust(50, b"\0"), b"upb/room/temp".ljust(51, b"\0"), bytes([kind]))
            assert one.receive_raw() == b"".join(fields) + data.ljust(1501, b"\0")
            assert payloads(bus, 1) == [shown]
        # Without 'broadcast: true' nothing of that leaves this host.
        bus.publish("end", "of it")
        assert b":end|of it" in wire.sock.recv(65_536)  # the first that anybody has sent


def test_what_the_bus_has_goes_to_subscribers_as_text(broker: Broker) -> None:
    before = broker.dropped("no_topic")
    with (
        broker.ready(b"TEXT", b"cardsys/+/tx", b"long") as one,
        broker.ready(b"TEXT2", b"*") as everything,
        Wire(broker.daemon.port) as wire,
        bccnd.connect(str(broker.daemon.bus)) as bus,
    ):
        bus.publish("cardsys/relay/tx", "from here")
        assert one.receive() == (b"127.0.0.1:0", b"cardsys/relay/tx", 3, b"from here")
        wire.send(datagram("relay02/cardsys/7", 1, "cardsys/relay/tx", "from there"))
        host = wire.sock.getsockname()[1]
        got = one.receive()
        assert got[1:] == (b"cardsys/relay/tx", 3, b"from there")
        assert got.peer.endswith(b":%d" % host)
        assert got.peer != b"127.0.0.1:0"
        bus.publish("long", b"y" * 2000)  # only programs of this host get what fits in no datagram
        assert one.receive().data == b"y" * 1500
        # The all form and directed messages are no topics.
        bus.send_all("to all")
        bus.send_to("relay01/*", "to some")
        bus.publish("x" * 51, "too long for a topic")
        bus.publish("last", "one")
        topics = [everything.receive().topic for _ in range(4)]
        assert topics == [b"cardsys/relay/tx", b"cardsys/relay/tx", b"long", b"last"]
        wait(lambda: broker.dropped("no_topic") == before + 1, "the count")


def test_with_broadcast_publications_go_to_the_segment(tmp_path: Path) -> None:
    """As text, bound by the rules for the broker's identity, and signed with the key of this host."""
    rules = [{"program": "bccnd-broker", "publish": ["upb/"]}, {"publish": [""]}]
    broker = Broker(tmp_path / "a", {"access": rules}, broadcast=True)
    broker.daemon.configure({"integrity": broker.daemon.with_key(KEY)})
    with broker, Wire(broker.daemon.port) as wire:
        broker.publish(b"door/front", 3, b"not permitted")
        broker.publish(b"upb/temp", 1, bytes.fromhex("097e"))
        heard = wire.receive(b"|")
        src, seq, _ = heard.partition(b"]")[2].decode().split(":", 2)
        assert src.startswith("relay01/bccnd-broker/")
        assert heard == datagram(src, int(seq), "upb/temp", b"24.30", KEY)
        broker.publish(b"upb/long", 3, b"z" * 1500)
        wait(lambda: broker.dropped("oversize") == 1, "the count")


@pytest.mark.slow
def test_programs_in_c_read_and_write_the_same_bytes(broker: Broker, tmp_path: Path) -> None:
    compiler = shutil.which("cc") or cannot_here("there is no cc")
    for name in ("subscriber", "publisher"):
        source = ROOT / f"examples/broker/{name}.c"
        command = [compiler, "-Wall", "-Wextra", "-Werror", "-O2", "-o", str(tmp_path / name), str(source)]
        subprocess.run(command, check=True)
    where = ("127.0.0.1", str(broker.tcp), "C1", "upb/+/x", "once")
    with subprocess.Popen([tmp_path / "subscriber", *where], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as reader:
        try:
            wait(lambda: {"upb/+/x", "once"} <= set(broker.patterns() or []), "its subscriptions on the bus")
            assert reader.stdout is not None
            texts = ["INT -10", "SHORT_REAL 24.30", "FLOAT 1013.2512"]
            for kind, value in [text.split() for text in [*texts, f"STRING {'x' * 1500}"]]:
                sent = ("127.0.0.1", str(broker.udp), "upb/a/x", kind, value)
                subprocess.run([tmp_path / "publisher", *sent], check=True)
                assert reader.stdout.readline().decode().endswith(f" - upb/a/x - {kind} - {value}\n")
            for kind, value in (("INT", "24.5"), ("INT", "4294967296"), ("SHORT_REAL", "-1.50"), ("FLOAT", "1e3")):
                refused = subprocess.run(
                    [tmp_path / "publisher", "127.0.0.1", str(broker.udp), "upb/a/x", kind, value], capture_output=True
                )
                assert (refused.returncode, b"usage" in refused.stderr) == (2, True), (kind, value)
            assert broker.daemon.tool("pub", "once", "hello").returncode == 0
            assert reader.stdout.readline() == b"127.0.0.1:0 - once - STRING - hello\n"
            second = subprocess.run([tmp_path / "subscriber", *where], capture_output=True, timeout=PATIENCE)
            assert (second.returncode, second.stdout) == (1, b"")
        finally:
            reader.kill()


def test_the_python_subscriber_prints_and_sends(broker: Broker) -> None:
    command = [sys.executable, str(ROOT / "examples/broker/subscriber.py"), f"127.0.0.1:{broker.tcp}"]
    with subprocess.Popen(
        [*command, "--id", "PYTHON", "values/+"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as reader:
        try:
            assert reader.stdin is not None
            assert reader.stdout is not None
            wait(lambda: "values/+" in (broker.patterns() or []), "its subscription on the bus")
            for kind, content, shown in VALUES:
                broker.publish(b"values/x", kind, bytes.fromhex(content))
                name = (b"INT", b"SHORT_REAL", b"FLOAT", b"STRING")[kind]
                assert reader.stdout.readline() == b"%b - values/x - %b - %b\n" % (broker.address, name, shown)
            broker.publish(b"values/\xff", 3, b"red\x1b[31m")  # nothing moves a cursor
            assert reader.stdout.readline().endswith(b" - values/\\xff - STRING - red\\x1b[31m\n")
            reader.stdin.write(b"shout\nsubscribe typed topic\nunsubscribe values/+\n")
            reader.stdin.flush()
            wait(lambda: set(broker.patterns() or []) == {"typed topic", "typed%20topic"}, "the change")
            _, errors = reader.communicate(b"exit\n", PATIENCE)
            assert (reader.returncode, b"'shout ' is no command" in errors) == (1, True)
        finally:
            reader.kill()
    # The broker has kept its subscription.
    wait(lambda: broker.peers() == 0, "it to be gone")
    options = ["--id", "PYTHON", "--json", "-n", "1"]
    with subprocess.Popen([*command, *options, "-t", "30"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as again:
        wait(lambda: broker.peers() == 1, "it to be back")
        broker.publish(b"typed topic", 0, bytes.fromhex("010000000a"))
        out, _ = again.communicate(timeout=PATIENCE)
    peer = broker.address.decode()
    assert json.loads(out) == {"peer": peer, "topic": "typed topic", "type": "INT", "value": "-10"}
    done = subprocess.run([*command, *options, "-t", "0.1"], capture_output=True, stdin=subprocess.DEVNULL, check=False)
    assert (done.returncode, done.stdout) == (1, b"")
