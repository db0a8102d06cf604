"""`bccnd.testing` for tests of programs: each has a bus of its own, which ends with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from typing import Final

import pytest

import bccnd
from bccnd import testing
from tests.support import PATIENCE, ROOT, wait

bus = testing.bus

_PROGRAM: Final = """
import bccnd

with bccnd.connect() as bus:
    bus.subscribe("door/")
    for message in bus:
        bus.publish("alarm/" + message.chan, message.payload)
"""
_KILLED: Final = """
import os
import signal

from bccnd.testing import private_bus

with private_bus() as bus:
    print(bus.path, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_program_that_is_started_finds_the_bus(bus: testing.PrivateBus) -> None:
    alarms = bus.connect()
    alarms.subscribe("alarm/")
    with subprocess.Popen([sys.executable, "-c", _PROGRAM], cwd=ROOT) as program:
        bus.wait_for_receivers("door/7")
        bus.connect().publish("door/7", "open")
        message = alarms.receive(PATIENCE)
        program.terminate()
    assert isinstance(message, bccnd.Message)
    assert (message.chan, message.text, message.src[:5]) == ("alarm/door/7", "open", "test/")


def test_other_hosts_are_heard_and_other_buses_are_not(bus: testing.PrivateBus) -> None:
    with pytest.raises(TimeoutError):
        bus.wait_for_receivers("door/7", timeout=0)
    other = bus.add_host("relay02")
    inbox = other.connect()
    inbox.subscribe("door/")
    other.wait_for_receivers("door/7")
    with testing.private_bus() as stranger:
        stranger.connect().publish("door/7", "of another bus")
    bus.connect().publish("door/7", "shut")
    with bccnd.Endpoint("relay03/sensor/7", bus.address, bus.port) as sensor:
        sensor.send("door/7", b"open")
    found = [next(iter(inbox)) for _ in range(2)]
    assert {(message.text, message.src.partition("/")[0]) for message in found} == {
        ("shut", "test"),
        ("open", "relay03"),
    }


def test_a_bus_has_the_given_sections_of_the_configuration() -> None:
    with testing.private_bus(access=[{"publish": ["door/"]}]) as bus:
        client = bus.connect()
        client.publish("alarm/fire", "")
        assert [refusal.reason for refusal in client.sync()] == ["not_permitted"]
    with pytest.raises(bccnd.BccndError, match="dedupp"), testing.private_bus(dedupp={}):
        pass


def test_a_daemon_ends_even_if_its_test_is_killed() -> None:
    with tempfile.TemporaryDirectory(prefix="bus") as folder:  # short enough for the path of a socket
        environment = {**os.environ, "TMPDIR": folder}
        command = [sys.executable, "-c", _KILLED]
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False)
        assert done.returncode == -signal.SIGKILL

        def is_gone() -> bool:
            try:
                bccnd.connect(done.stdout.strip()).close()
            except bccnd.BusError:
                return True
            return False

        wait(is_gone, "the daemon to end")
