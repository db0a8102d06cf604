"""UDP sockets as systemd and other programs of a host have them."""

from __future__ import annotations

import socket


def bound_udp(host: str = "0.0.0.0", port: int = 0, *, device: str = "", v6only: bool = True) -> socket.socket:
    """A socket that is bound as a socket unit says."""
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    if device:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if ":" in host:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, v6only)
    sock.bind((host, port))
    return sock


def broadcaster(host: str = "") -> socket.socket:
    """A socket of another program, on a port that the kernel chooses."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    sock.bind((host, 0))
    return sock
