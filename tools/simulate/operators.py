"""What operators do at random: they reload, restart, kill, upgrade, and look at pages."""

from __future__ import annotations

import copy
import os
import re
import signal
import socket
from collections import defaultdict
from typing import Any, Final

from tools.simulate import interposer
from tools.simulate.host import Host
from tools.simulate.violation import Violation
from tools.simulate.world import World

#: seconds for which a daemon is away at a restart
_AWAY: Final = (0.0, 0.05, 0.5, 3.0)
_PAGES: Final = ("/metrics", "/healthz", "/", "/metrics", "/status.json")


class Operators:
    """Of all hosts; they restart what has ended."""

    def __init__(self, world: World) -> None:
        self._world = world
        world.on_down = self.restart_later
        #: by host: which life of it was looked at last, and the counters of its page, which may only rise
        self._seen: dict[str, tuple[int, dict[str, float]]] = {}
        #: hosts whose last start was killed
        self._killed: defaultdict[str, bool] = defaultdict(bool)

    # -- the end of a daemon, and the next one

    def restart_later(self, host: Host) -> None:
        self._world.at(self._world.rng.choice(_AWAY), lambda: self.start(host))

    def start(self, host: Host) -> None:
        """Start a daemon; sometimes it is killed before it is ready."""
        world = self._world
        if host.daemon is not None:
            return
        world.disturbed[host.name] = world.now
        # Of two starts in a row that are killed while they read it, the image takes the blame.
        kill_at = world.rng.randrange(1, 60) if world.rng.random() < 0.1 and not self._killed[host.name] else 0
        failed = interposer.failed()
        begun = host.start(kill_at=kill_at)
        self._killed[host.name] = not begun and not host.refused
        if begun and host.serving.crashes != (host.crashed and host.store.holds("host")):
            raise Violation(f"{host.name} has {'missed' if host.crashed else 'imagined'} a crash of the daemon before")
        if not begun:
            excused = (
                host.store.refused or interposer.failed() > failed or host.out_of_descriptors or "more" in host.settings
            )
            if host.refused and not excused:
                raise Violation(f"{host.name} does not start: {host.refused}")
            world.note(f"{host.name} does not start: {host.refused or 'it is killed'}")
            world.injected["kill"] += not host.refused
            world.killed_starts[host.name] += not host.refused
            host.refused = ""
            world.went_down(host, world.kept[host.name])
            self.restart_later(host)
            return
        world.note(f"{host.name} is up")
        world.network.collect(host.name)
        world.serve_clients(host)

    def stop(self, host: Host) -> None:
        """Stop a daemon in the middle of what it does."""
        self._world.note(f"{host.name} is told to stop")
        host.terminate()

    def stop_after_stall(self, host: Host) -> None:
        """A daemon is not run for a while; then it is told to stop."""
        world = self._world
        world.note(f"{host.name} is not run")
        host.stalled = True

        def go_on() -> None:
            host.stalled = False
            if host.alive:
                host.terminate()

        world.at(0.5 + world.rng.random() * 2, go_on)

    def kill(self, host: Host) -> None:
        """Kill a daemon at one of its next calls."""
        host.kill_at = self._world.rng.choice([1, 2, 3, 5, 8, 13, 21, 34, 55, 89])
        self._world.note(f"{host.name} will be killed at call {host.kill_at}")
        self._world.injected["kill"] += 1

    def reload(self, host: Host) -> None:
        """Reload: the same, other limits, gateways come and go, or a bad file."""
        world, rng = self._world, self._world.rng
        settings: dict[str, Any] = copy.deepcopy(host.settings)
        choice = rng.choice(("same", "bad", "gateway", "no_gateway", "heartbeat", "groups"))
        if choice == "gateway":
            settings["gateways"] = _gateway(world)
        elif choice == "no_gateway":
            settings.pop("gateways", None)
        elif choice == "heartbeat":
            settings["heartbeat"] = {"interval": rng.choice([0, 1, 5])}
        elif choice == "groups":
            settings["metrics"] = {"groups": {"b": "b/>"} if rng.random() < 0.5 else {}}
        world.note(f"{host.name} reloads: {choice}")
        if choice == "bad":
            host.config.write_text("{no: [such}")
            host.hang_up()
            world.settle()
            host.configure(host.settings)
        else:
            host.configure(settings)
            host.hang_up()

    def replace_child(self, host: Host) -> None:
        """A gateway ends in the very moment in which a reload replaces it."""
        if "gateways" not in host.settings:
            return
        world = self._world
        children = [child for child in host.serving.gateway_processes.values() if child.pid]
        if not children:
            return
        world.note(f"{host.name}: a gateway ends while a reload replaces it")
        world.injected["child"] += 1
        end_child(children[0].pid)
        settings = copy.deepcopy(host.settings)
        settings["gateways"] = _gateway(world)
        host.configure(settings)
        host.hang_up()

    # -- pages

    def look(self, host: Host) -> None:
        """Look at a page."""
        path = self._world.rng.choice(_PAGES)
        body = self.fetch(host, path)
        if path == "/metrics" and body:
            self._check_metrics(host, body)

    def fetch(self, host: Host, path: str) -> str:
        """Return a page of a host; empty if it has none now."""
        world = self._world
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setblocking(False)
        sock.connect_ex(("127.0.0.1", host.http_port))
        data = b""
        try:
            for attempt in range(60):
                if attempt == 1:
                    sock.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                world.network.await_delivery()
                world.settle()
                world.network.await_delivery()
                if not host.alive:
                    return ""
                try:
                    while some := sock.recv(1 << 20):
                        data += some
                    break
                except BlockingIOError:
                    world.advance(0.002)
        except OSError:
            return ""
        finally:
            sock.close()
            world.network.await_delivery()
            world.settle()
        return data.partition(b"\r\n\r\n")[2].decode()

    def _check_metrics(self, host: Host, page: str) -> None:
        """Check that counters only rise, and that verdicts add up."""
        found = {
            name: float(value)
            for name, value in re.findall(r"^(bccnd_\w+_total(?:\{[^}]*\})?) (\S+)$", page, re.MULTILINE)
        }
        life, before = self._seen.get(host.name, (host.starts, {}))
        for name, count in before.items() if life == host.starts else ():
            if found.get(name, count) < count and "group" not in name:
                raise Violation(f"{host.name}: {name} has fallen from {count} to {found.get(name)}")
        self._seen[host.name] = host.starts, found
        verdicts = sum(n for name, n in found.items() if name.startswith("bccnd_datagrams_total{"))
        received = sum(n for name, n in found.items() if name.startswith("bccnd_datagrams_received_total{"))
        if verdicts != received:
            raise Violation(f"{host.name}: {received} datagrams have {verdicts} verdicts")


def _gateway(world: World) -> dict[str, Any]:
    """Return settings of a gateway that differ each time, so that it is replaced."""
    address = f"127.0.0.1:{world.rng.randrange(2000, 3000)}"
    return {"broker": {"tcp": address, "udp": address}}


def end_child(pid: int) -> None:
    """End a process, and wait until its parent can be told."""
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
