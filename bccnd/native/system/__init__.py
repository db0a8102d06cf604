"""Primitives around system calls: clocks, epoll, and many packets with one call."""
