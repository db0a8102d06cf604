"""The HTTP server: pages, refusals, and clients that send garbage, nothing, or do not read."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bccnd.net import http
from bccnd.net.http import MAX_CONNECTIONS, MAX_HEADERS, REASONS, Answer, HttpServer
from bccnd.net.http_hosts import HostNames
from bccnd.net.listen import listen_tcp
from bccnd.net.loop import Loop
from tests.bus.leftovers import kept_without_gc
from tests.limits import descriptors_left
from tests.support import turn, turn_until

LARGE = random.Random(0).randbytes(16_000_000)


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


class Site:
    """A server with a few pages on a loop that the test turns."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.listener = listen_tcp("127.0.0.1", 0)
        self.address: tuple[str, int] = self.listener.getsockname()
        self.accepts: list[str] = []
        self.refused = dict.fromkeys(REASONS, 0)
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
        )
        self.job = LongJob()
        self._visitors: list[socket.socket] = []

    def _count_refused(self, reason: str) -> None:
        self.refused[reason] += 1

    def _page(self, accept: str) -> tuple[int, str, bytes]:
        self.accepts.append(accept)
        return 200, "text/html; charset=utf-8", b"<p>hello"

    def _broken(self, _accept: str) -> tuple[int, str, bytes]:
        raise ZeroDivisionError

    def visit(self, request: bytes = b"") -> socket.socket:
        """A connection that has sent this."""
        visitor = socket.create_connection(self.address)
        visitor.setblocking(False)
        self._visitors.append(visitor)
        visitor.sendall(request)
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
        for visitor in self._visitors:
            visitor.close()
        self.server.close()
        self.loop.close()


@pytest.fixture
def site() -> Iterator[Site]:
    one = Site()
    yield one
    one.close()


def get(path: str, *headers: str, method: str = "GET", version: str = "1.1") -> bytes:
    named = () if any(one.startswith("Host:") for one in headers) else ("Host: localhost",)
    return "\r\n".join([f"{method} {path} HTTP/{version}", *named, *headers, "", ""]).encode("latin-1")


def split(answer: bytes) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body."""
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode("ascii").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return int(first.split()[1]), headers, body


def test_requests_share_the_time_of_a_round_and_what_they_have_in_common(site: Site) -> None:
    site.server._round_seconds = 3600.0
    kinds = ["Accept: a", "Accept: b"]
    visitors = [site.visit() for _ in range(12)]
    for number, visitor in enumerate(visitors):
        visitor.sendall(get("/", kinds[number % 2], method="HEAD" if number % 3 == 0 else "GET"))
    turn(site.loop)
    assert sorted(site.accepts) == ["a", "b"], "each kind is rendered once in a round"
    answers = [split(site.rest(visitor)) for visitor in visitors]
    assert [answer[2] for answer in answers] == [b"" if number % 3 == 0 else b"<p>hello" for number in range(12)]
    assert {answer[1]["content-length"] for answer in answers} == {"8"}
    site.ask(get("/", kinds[0]))
    assert len(site.accepts) == 3, "a later request gets a new page"
    assert not site.server._answers


def test_requests_beyond_the_time_of_a_round_wait_for_the_next(site: Site) -> None:
    site.server._round_seconds = 1e-9
    visitors = [site.visit(get("/")) for _ in range(6)]
    before = len(site.accepts)
    while len(site.accepts) < 6:
        turn(site.loop)
        assert len(site.accepts) <= before + 1
        before = len(site.accepts)
    assert all(split(site.rest(visitor))[0] == 200 for visitor in visitors)


def test_no_object_of_a_connection_that_ended_stays(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    def visit() -> None:
        for request in [get("/"), get("/broken"), get("/none"), b"nonsense\r\n\r\n", get("/", method="POST")] * 10:
            site.ask(request)
        for _ in range(10):
            site.visit(b"GET").close()
        turn_until(site.loop, lambda: not site.server._connections)
        while site._visitors:
            site._visitors.pop().close()
        caplog.clear()

    assert kept_without_gc(visit, 10) == {}


def refused(site: Site) -> dict[str, int]:
    return {reason: count for reason, count in site.refused.items() if count}


def test_get_gives_the_page_with_headers_that_let_it_do_nothing_else(site: Site) -> None:
    status, headers, body = split(site.ask(get("/")))
    assert (status, body) == (200, b"<p>hello")
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert headers["content-length"] == str(len(body))
    assert headers["cache-control"] == "no-store"
    assert headers["connection"] == "close"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-security-policy"].startswith("default-src 'none'")
    status, same, nothing = split(site.ask(get("/", method="HEAD")))
    assert (status, nothing) == (200, b"")
    assert {**headers, "date": ""} == {**same, "date": ""}


def test_what_else_is_a_request_for_the_page(site: Site) -> None:
    for request in (
        b"GET / HTTP/1.0\r\n\r\n",
        get("/?x=1"),
        get("/", "X-Long: " + "x" * (MAX_HEADERS - 200)),
        get("/", "Accept: application/openmetrics-text"),
    ):
        assert split(site.ask(request))[2] == b"<p>hello"
    assert site.accepts == ["", "", "", "application/openmetrics-text"]
    assert site.ask(get("/") * 2).count(b"HTTP/1.1 200") == 1


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
    answer = split(site.ask(get("/", f"Host: {host}")))
    assert answer[0] == status
    assert (b"metrics.hosts" in answer[2]) == (status == 421)
    assert refused(site) == ({"foreign_host": 1} if status == 421 else {})


def test_where_requests_come_in_from_elsewhere_names_are_checked_if_there_are_some(tmp_path: Path) -> None:
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


def test_another_path_is_404_and_is_not_repeated_and_another_method_is_405(site: Site) -> None:
    for path in ("/nosuch", "/metrics/", "//", "*", "http://elsewhere/", "/%00", "/<script>"):
        status, headers, body = split(site.ask(get(path)))
        assert (status, headers["content-type"]) == (404, "text/plain"), path
        assert b"script" not in body
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "NONSENSE"):
        assert split(site.ask(get("/", method=method)))[0] == 405, method
    assert site.accepts == []


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
    assert set(refused(site)) <= {"bad_request"}
    assert b"no HTTP" not in garbage or refused(site) == {"bad_request": 1}
    before.sendall(b"Host: localhost\r\n\r\n")
    assert split(site.rest(before))[2] == b"<p>hello"


def test_a_request_may_come_in_pieces_and_be_half_closed(site: Site) -> None:
    request = get("/", "X-Long: " + "x" * 100)
    visitor = site.visit()
    for place in range(len(request)):
        visitor.sendall(request[place : place + 1])
        turn(site.loop)
    visitor.shutdown(socket.SHUT_WR)
    assert split(site.rest(visitor))[2] == b"<p>hello"


def test_headers_without_end_are_cut_off(site: Site) -> None:
    visitor = site.visit(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
    sent = 0
    line = b"X-More: " + b"x" * 1000 + b"\r\n"
    while site.server._connections and sent < 100 * MAX_HEADERS:
        visitor.sendall(line)
        sent += len(line)
        turn(site.loop, 2)
    assert MAX_HEADERS - len(line) <= sent <= 4 * MAX_HEADERS
    assert site.rest(visitor) == b""


def test_a_body_larger_than_the_sockets_buffer_arrives_whole(site: Site) -> None:
    visitor = site.visit(get("/large"))
    turn(site.loop, 5)
    # Others are served while this one has not taken its answer.
    assert split(site.ask(get("/")))[2] == b"<p>hello"
    status, headers, body = split(site.rest(visitor))
    assert status == 200
    assert int(headers["content-length"]) == len(LARGE)
    assert body == LARGE


def test_a_visitor_that_leaves_harms_no_other(site: Site) -> None:
    for request in (b"", b"GET / HT", get("/large")):
        site.visit(request).close()
        turn_until(site.loop, lambda: not site.server._connections, "the end of the visit")
        assert request or refused(site) == {}
    assert split(site.ask(get("/")))[0] == 200


def test_a_slow_visitor_is_cut_off(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "TIMEOUT", 600.0)
    site.visit()
    turn(site.loop, 100)
    assert len(site.server._connections) == 1
    monkeypatch.setattr(http, "TIMEOUT", 0.1)
    for number, request in enumerate((b"", b"GET / HTTP/1.1\r\nHost:", get("/large")), start=1):
        visitor = site.visit(request)
        turn_until(site.loop, lambda: len(site.server._connections) == 1, "patience to end")
        assert len(site.rest(visitor)) < len(LARGE)
        assert refused(site) == {"slow_visitor": number}
    assert len(site.server._connections) == 1


def test_connections_are_limited_and_a_new_one_takes_the_place_of_the_oldest_without_a_request(site: Site) -> None:
    # The oldest has asked, and has not taken its answer.
    asked = site.visit(get("/large"))
    held = [site.visit(b"" if number % 2 else b"GET / HTTP/1.1\r\n") for number in range(MAX_CONNECTIONS - 1)]
    for number in range(3):
        assert split(site.ask(get("/")))[0] == 200
        assert site.rest(held[number]) == b""
        assert refused(site) == {"too_many_visitors": number + 1}
        held.append(site.visit())
        assert len(site.server._connections) == MAX_CONNECTIONS
    held[4].sendall(b"Host: localhost\r\n\r\n")
    held[5].sendall(get("/"))
    assert [split(site.rest(visitor))[0] for visitor in held[4:6]] == [200, 200]
    assert split(site.rest(asked))[2] == LARGE
    assert refused(site) == {"too_many_visitors": 3}


def test_no_connection_that_has_asked_gives_its_place_to_another(site: Site) -> None:
    held = [site.visit(get("/large")) for _ in range(MAX_CONNECTIONS)]
    assert len(site.server._connections) == MAX_CONNECTIONS
    assert site.rest(site.visit(get("/"))) == b""
    assert refused(site) == {"too_many_visitors": 1}
    held[0].close()
    turn_until(site.loop, lambda: len(site.server._connections) < MAX_CONNECTIONS, "a free place")
    assert split(site.ask(get("/")))[0] == 200
    assert split(site.rest(held[1]))[2] == LARGE


@pytest.mark.parametrize("seconds", [3600.0, 1e-9])
def test_a_request_that_has_arrived_keeps_its_place_before_it_is_read(site: Site, seconds: float) -> None:
    site.server._round_seconds = seconds
    visitors = []
    for _ in range(MAX_CONNECTIONS):
        visitor = socket.create_connection(site.address)
        visitor.setblocking(False)
        site._visitors.append(visitor)
        visitor.sendall(get("/"))
        visitors.append(visitor)
    idle = [socket.create_connection(site.address) for _ in range(MAX_CONNECTIONS)]
    site._visitors += idle
    assert [split(site.rest(visitor))[0] for visitor in visitors] == [200] * MAX_CONNECTIONS


def test_close_ends_every_visit_and_the_listening(site: Site) -> None:
    visitor = site.visit(b"GET")
    site.server.close()
    assert site.rest(visitor) == b""
    assert site.listener.fileno() == -1
    site.server.close()  # to do so twice is no fault


def test_a_page_that_finds_no_descriptor_costs_its_visitor_only(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    def open_file(_accept: str) -> tuple[int, str, bytes]:
        with open("/dev/null", "rb") as file:
            return 200, "text/plain", file.read()

    site.server.pages = {**site.server.pages, "/opens": open_file}
    visitor = site.visit()
    with descriptors_left(0):
        visitor.sendall(get("/opens"))
        assert site.rest(visitor) == b""
    assert refused(site) == {"out_of_descriptors": 1}
    assert caplog.records == []
    assert split(site.ask(get("/opens")))[0] == 200


def test_a_page_that_fails_costs_its_visitor_only(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    assert site.ask(get("/broken")) == b""
    assert "(bug)" in caplog.text
    assert refused(site) == {"bug": 1}
    assert split(site.ask(get("/")))[0] == 200


def test_other_requests_are_answered_while_a_long_page_is_made(site: Site) -> None:
    long, same, head = (site.visit(get("/long", method=method)) for method in ("GET", "GET", "HEAD"))
    assert b"hello" in site.ask(get("/"))
    assert site.job.left
    answers = [split(site.rest(visitor)) for visitor in (long, same, head)]
    assert [(body, headers["content-length"]) for _, headers, body in answers] == [(b"made", "4")] * 2 + [(b"", "4")]
