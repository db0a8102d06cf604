"""Decides whether a datagram is authentic: checksums, HMAC and signatures."""
