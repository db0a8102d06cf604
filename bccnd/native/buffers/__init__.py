"""Primitives on bytes, without a copy: HMAC, the header of a datagram, a dictionary by slice, counters, a ring."""
