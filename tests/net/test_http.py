"""The HTTP server: pages, refusals, and clients that send garbage, nothing, or do not read."""

from __future__ import annotations

import errno
import random
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bccnd.net import http
from bccnd.net.http import MAX_CONNECTIONS, MAX_HEADERS, REASONS, Answer, HttpServer
from bccnd.net.http_hosts import HostNames
from bccnd.net.listen import listen_tcp
from bccnd.net.loop import Loop
from tests.bus.leftovers import kept_without_gc
from tests.limits import descriptors
from tests.support import Closing, turn, turn_until

LARGE = random.Random(0).randbytes(8_000_000)


class LongJob:
    """A page of many steps, each of which takes half of what a round of the loop gives them."""

    def __init__(self) -> None:
        self.left = 400

    def step(self) -> Answer | None:
        if self.left:
            self.left -= 1
            time.sleep(http.WORK_SECONDS / 2)
            return None
        return 200, "text/plain", b"made"


class Site(Closing):
    """A server with a few pages on a loop that the test turns."""

    def __init__(self, round_seconds: float = 3600.0) -> None:
        self._before = len(descriptors())
        self.loop = Loop()
        self.listener = listen_tcp("127.0.0.1", 0)
        self.address: tuple[str, int] = self.listener.getsockname()
        self.accepts: list[str] = []
        self._refused = dict.fromkeys(REASONS, 0)
        self.fail: Callable[[], Exception] = ZeroDivisionError
        self.job = LongJob()
        self.server = HttpServer(
            self.loop,
            self.listener,
            {
                "/": self._page,
                "/large": lambda _: (200, "text/plain", LARGE),
                "/broken": self._broken,
                "/long": lambda _: self.job,
            },
            self._count_refused,
            round_seconds=round_seconds,
        )
        self._idle = len(descriptors()) - self._before
        self.visitors: list[socket.socket] = []

    def _count_refused(self, reason: str) -> None:
        self._refused[reason] += 1

    def _page(self, accept: str) -> tuple[int, str, bytes]:
        self.accepts.append(accept)
        return 200, "text/html; charset=utf-8", b"<p>hello"

    def _broken(self, _accept: str) -> tuple[int, str, bytes]:
        raise self.fail()

    def refused(self) -> dict[str, int]:
        return {reason: count for reason, count in self._refused.items() if count}

    def open(self) -> int:
        """The number of connections that the server has open."""
        ours = sum(visitor.fileno() >= 0 for visitor in self.visitors)
        return len(descriptors()) - self._before - self._idle - ours

    def connect(self, request: bytes = b"") -> socket.socket:
        """A connection over which this was sent, which the server has not accepted yet."""
        visitor = socket.create_connection(self.address)
        visitor.setblocking(False)
        self.visitors.append(visitor)
        visitor.sendall(request)
        return visitor

    def visit(self, request: bytes = b"") -> socket.socket:
        visitor = self.connect(request)
        turn(self.loop, 2)
        return visitor

    def rest(self, visitor: socket.socket) -> bytes:
        """All that comes until the server closes the connection."""
        got = bytearray()

        def ended() -> bool:
            try:
                data = visitor.recv(1 << 20)
            except BlockingIOError:
                return False
            except ConnectionResetError:
                return True
            got.extend(data)
            return not data

        turn_until(self.loop, ended, "the end of the answer")
        return bytes(got)

    def ask(self, request: bytes) -> bytes:
        return self.rest(self.visit(request))

    def close(self) -> None:
        for visitor in self.visitors:
            visitor.close()
        self.server.close()
        self.loop.close()


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as one:
        yield one


def get(path: str, *headers: str, method: str = "GET", version: str = "1.1") -> bytes:
    named = () if any(one.startswith("Host:") for one in headers) else ("Host: localhost",)
    return "\r\n".join([f"{method} {path} HTTP/{version}", *named, *headers, "", ""]).encode("latin-1")


def split(answer: bytes) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body."""
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode("ascii").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return int(first.split()[1]), headers, body


def test_a_page_may_do_nothing_but_be_shown(site: Site) -> None:
    status, headers, body = split(site.ask(get("/")))
    assert (status, body) == (200, b"<p>hello")
    kind = {"content-type": "text/html; charset=utf-8", "content-length": str(len(body)), "connection": "close"}
    assert headers.items() >= {**kind, "cache-control": "no-store", "x-content-type-options": "nosniff"}.items()
    assert headers["content-security-policy"].startswith("default-src 'none'")
    status, same, nothing = split(site.ask(get("/", method="HEAD")))
    assert (status, nothing) == (200, b"")
    assert {**headers, "date": ""} == {**same, "date": ""}


@pytest.mark.parametrize(
    ("requests", "status"),
    [
        ([b"GET / HTTP/1.0\r\n\r\n", get("/?x=1"), get("/", "X-Long: " + "x" * (MAX_HEADERS - 200))], 200),
        ([get(path) for path in ("/nosuch", "/metrics/", "//", "*", "http://elsewhere/", "/%00", "/<script>")], 404),
        ([get("/", method=method) for method in ("POST", "PUT", "DELETE", "OPTIONS", "NONSENSE")], 405),
    ],
    ids=["page", "no page", "no method"],
)
def test_a_request_gets_its_status(site: Site, requests: list[bytes], status: int) -> None:
    for request in requests:
        found, _, body = split(site.ask(request))
        assert (found, b"script" in body) == (status, False), request
    assert len(site.accepts) == (len(requests) if status == 200 else 0)
    assert site.refused() == {}


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *(("127.0.0.1:9540", 200), ("127.0.0.1", 200), ("[::1]:9540", 200), ("192.0.2.7", 200), ("LocalHost.:80", 200)),
        *((socket.gethostname(), 200), (f"{socket.gethostname().upper()}:9540", 200), ("a.localhost", 200)),
        *(("proxy.example.org", 200), ("PROXY.example.org.:443", 200), ("", 421), ("elsewhere.example.org", 421)),
        *((name, 421) for name in ("127.0.0.1.example.org", "localhost.example.org:9540", "xlocalhost", "here:there")),
    ],
)
def test_on_the_loopback_only_names_of_this_host_are_served(site: Site, host: str, status: int) -> None:
    # The name of a stranger may resolve to this host.
    site.server.names = HostNames(["proxy.example.org"])
    assert split(site.ask(get("/", f"Host: {host}")))[0] == status
    assert site.refused() == ({"foreign_host": 1} if status == 421 else {})


def test_requests_from_elsewhere_need_a_known_name_if_any(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.1.1 relay.example.org relay # ours\n::1 six\n192.0.2.1 other.example.org\nnonsense\n\n")
    usual, named = HostNames((), str(hosts)), HostNames(["relay01.example.org"], str(tmp_path / "none"))
    for name in ("relay.example.org", "six", "relay"):
        assert usual.accepts(name, "127.0.0.1")
    for local in ("127.0.0.1", "::ffff:127.0.0.1", "::1", "127.0.1.1"):
        assert not usual.accepts("other.example.org", local)
    for arrived in ("192.0.2.7", "fe80::1%eth0"):
        assert usual.accepts("other.example.org", arrived)
        assert not named.accepts("other.example.org", arrived)
        assert named.accepts("relay01.example.org:9540", arrived)
        assert named.accepts(None, arrived)


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
        b"\x00" * 100,
        b"\1\2\3 no HTTP\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",  # no Host
        b"GET / HTTP/1.1\r\nHost: here\r\nContent-Length: many\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost here\r\n\r\n",
        "GET /ä HTTP/1.1\r\nHost: here\r\n\r\n".encode(),
    ],
)
def test_garbage_ends_its_own_connection_and_no_other(site: Site, garbage: bytes) -> None:
    before = site.visit(b"GET / HTTP/1.1\r\n")
    assert b"hello" not in site.ask(garbage)
    assert site.refused() == {"bad_request": 1}
    before.sendall(b"Host: localhost\r\n\r\n")
    assert split(site.rest(before))[2] == b"<p>hello"


def test_headers_without_end_are_cut_off(site: Site) -> None:
    visitor = site.visit(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
    sent = 0
    line = b"X-More: " + b"x" * 1000 + b"\r\n"
    while site.open() and sent < 100 * MAX_HEADERS:
        visitor.sendall(line)
        sent += len(line)
        turn(site.loop, 2)
    assert MAX_HEADERS - len(line) <= sent <= 4 * MAX_HEADERS
    assert site.rest(visitor) == b""


def test_other_requests_are_answered_while_a_long_page_is_made(site: Site) -> None:
    long, same, head = (site.visit(get("/long", method=method)) for method in ("GET", "GET", "HEAD"))
    assert b"hello" in site.ask(get("/"))
    assert site.job.left
    answers = [split(site.rest(visitor)) for visitor in (long, same, head)]
    assert [(body, headers["content-length"]) for _, headers, body in answers] == [(b"made", "4")] * 2 + [(b"", "4")]


@pytest.mark.parametrize(
    ("fail", "reason"), [(ZeroDivisionError, "bug"), (lambda: OSError(errno.EMFILE, ""), "out_of_descriptors")]
)
def test_a_page_that_fails_costs_its_visitor_only(
    site: Site, fail: Callable[[], Exception], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    site.fail = fail
    assert site.ask(get("/broken")) == b""
    assert site.refused() == {reason: 1}
    assert bool(caplog.records) == (reason == "bug")
    assert split(site.ask(get("/")))[0] == 200


# -- what requests share of a round


def test_a_round_renders_each_kind_of_page_once(site: Site) -> None:
    kinds = ["Accept: a", "Accept: b"]
    visitors = [site.visit() for _ in range(12)]
    for number, visitor in enumerate(visitors):
        visitor.sendall(get("/", kinds[number % 2], method="HEAD" if number % 3 == 0 else "GET"))
    turn(site.loop)
    assert sorted(site.accepts) == ["a", "b"]
    answers = [split(site.rest(visitor)) for visitor in visitors]
    assert [answer[2] for answer in answers] == [b"" if number % 3 == 0 else b"<p>hello" for number in range(12)]
    site.ask(get("/", kinds[0]))
    assert len(site.accepts) == 3, "a later request gets a new page"


def test_requests_beyond_the_time_of_a_round_wait_for_the_next() -> None:
    with Site(round_seconds=1e-9) as site:
        visitors = [site.visit(get("/")) for _ in range(6)]
        before = len(site.accepts)
        while len(site.accepts) < 6:
            turn(site.loop)
            assert len(site.accepts) <= before + 1
            before = len(site.accepts)
        assert all(split(site.rest(visitor))[0] == 200 for visitor in visitors)


# -- connections


def test_no_object_of_a_connection_that_ended_stays(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    def visit() -> None:
        for request in [get("/"), get("/broken"), get("/none"), b"nonsense\r\n\r\n", get("/", method="POST")] * 10:
            site.ask(request)
        for _ in range(10):
            site.visit(b"GET").close()
        turn_until(site.loop, lambda: not site.open())
        while site.visitors:
            site.visitors.pop().close()
        caplog.clear()

    assert kept_without_gc(visit, 10) == {}


@pytest.mark.parametrize("request_", [b"", b"GET / HT", get("/large")], ids=["nothing", "half", "all"])
def test_a_visitor_that_leaves_harms_no_other(site: Site, request_: bytes) -> None:
    site.visit(request_).close()
    turn_until(site.loop, lambda: not site.open(), "the end of the visit")
    assert request_ or site.refused() == {}
    assert split(site.ask(get("/")))[0] == 200


def test_a_slow_visitor_is_cut_off(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.visit()  # by the usual time
    monkeypatch.setattr(http, "TIMEOUT", 0.1)
    for number, request in enumerate((b"", b"GET / HTTP/1.1\r\nHost:", get("/large")), start=1):
        visitor = site.visit(request)
        turn_until(site.loop, lambda: site.open() == 1, "patience to end")
        assert len(site.rest(visitor)) < len(LARGE)
        assert site.refused() == {"slow_visitor": number}


def test_a_new_visitor_replaces_the_oldest_without_a_request(site: Site) -> None:
    # The oldest has asked, and has not taken its answer.
    asked = site.visit(get("/large"))
    held = [site.visit(b"" if number % 2 else b"GET / HTTP/1.1\r\n") for number in range(MAX_CONNECTIONS - 1)]
    for number in range(3):
        assert split(site.ask(get("/")))[0] == 200
        assert site.rest(held[number]) == b""
        assert site.refused() == {"too_many_visitors": number + 1}
        held.append(site.visit())
        assert site.open() == MAX_CONNECTIONS
    held[4].sendall(b"Host: localhost\r\n\r\n")
    held[5].sendall(get("/"))
    assert [split(site.rest(visitor))[0] for visitor in held[4:6]] == [200, 200]
    assert split(site.rest(asked))[2] == LARGE
    assert site.refused() == {"too_many_visitors": 3}


def test_no_visitor_that_has_asked_is_replaced(site: Site) -> None:
    for _ in range(MAX_CONNECTIONS):
        site.visit(get("/large"))
    assert site.rest(site.visit(get("/"))) == b""
    assert site.refused() == {"too_many_visitors": 1}


@pytest.mark.parametrize("seconds", [3600.0, 1e-9])
def test_a_request_keeps_its_place_before_it_is_read(seconds: float) -> None:
    with Site(seconds) as site:
        visitors = [site.connect(get("/")) for _ in range(MAX_CONNECTIONS)]
        for _ in range(MAX_CONNECTIONS):
            site.connect()
        assert [split(site.rest(visitor))[0] for visitor in visitors] == [200] * MAX_CONNECTIONS
        assert site.refused().keys() <= {"too_many_visitors"}


def test_close_ends_every_visit_and_the_listening(site: Site) -> None:
    visitor = site.visit(b"GET")
    site.server.close()
    assert site.rest(visitor) == b""
    assert site.listener.fileno() == -1
    site.server.close()  # to do so twice is no fault
