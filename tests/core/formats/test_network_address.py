"""Addresses of hosts and links: what is accepted can be looked up, whatever comes of that."""

from __future__ import annotations

import socket
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bccnd.core.formats.bus_address import MAX_PATH, SUN_PATH, is_descriptor_path
from bccnd.core.formats.network_address import LinkUrl, check_host, parse_ip_port, parse_link_url, write_host_port
from bccnd.errors import BadAddress
from tests.core.material import reason_of


@pytest.mark.parametrize(
    ("url", "parsed"),
    [
        ("tcp://relay01:5402", LinkUrl(host="relay01", port=5402)),
        ("tls+tcp://relay01.example.org.:5402", LinkUrl(tls=True, host="relay01.example.org.", port=5402)),
        ("tcp://bücher.example:1", LinkUrl(host="bücher.example", port=1)),
        ("tcp://[2001:db8::1]:1", LinkUrl(host="2001:db8::1", port=1)),
        ("tcp://[fe80::1%eth0]:1", LinkUrl(host="fe80::1%eth0", port=1)),
        ("tcp://*:1", LinkUrl(port=1)),
        ("ipc:///run/link", LinkUrl(path="/run/link")),
        ("abstract://link", LinkUrl(path="\0link")),
    ],
)
def test_a_url_is_taken_apart(url: str, parsed: LinkUrl) -> None:
    assert parse_link_url(url) == parsed


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("tcp://[10.0.0.7]:1", "no_address"),
        ("tcp://2001:db8::1:1", "no_address"),
        (f"ipc://{'x' * (MAX_PATH + 1)}", "too_long"),
        (f"abstract://{'x' * SUN_PATH}", "too_long"),
    ],
)
def test_a_url_is_refused(url: str, reason: str) -> None:
    assert reason_of(parse_link_url, url) == reason
    if reason == "too_long":
        assert reason_of(parse_link_url, url[:-1]) == ""


@given(st.text(alphabet="ab.-_:[]%*@ü0\0\u2024\ud800", max_size=12))
@example("a..b")
@example("a" * 64)
@example(".")
@example("%")
def test_the_lookup_of_an_accepted_host_raises_only_oserror(host: str) -> None:
    try:
        check_host(host)
    except BadAddress:
        return
    with suppress(OSError):
        socket.getaddrinfo(host, 1, flags=socket.AI_NUMERICHOST)  # asks no name server


@given(st.text(alphabet="tcp:/ls+i[]%a1.", max_size=20), st.booleans())
def test_any_text_is_a_url_or_refused(text: str, dials: bool) -> None:
    with suppress(BadAddress):
        parse_link_url(f"tcp://{text}", dials=dials)


@given(st.ip_addresses().filter(lambda one: not one.is_link_local), st.integers(0, 65_535))
def test_an_address_with_a_port_is_read_as_it_is_written(address: object, port: int) -> None:
    host = str(address)
    if not host.startswith("::ffff:"):
        assert parse_ip_port(write_host_port(host, port)) == (host, port)
    assert write_host_port("::ffff:10.0.0.7", port) == f"10.0.0.7:{port}"


@pytest.mark.parametrize("path", ["/dev/fd/3", "/dev/stdin", "/proc/self/fd/3", "//dev//fd/3", "/proc/1/task/1/fd/0"])
def test_a_path_to_a_descriptor_is_known(path: str) -> None:
    assert is_descriptor_path(path)
    assert not is_descriptor_path(f"/run{path}")
