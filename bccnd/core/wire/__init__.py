"""Defines the bytes on a segment and on the local bus: datagrams, frames, identities, targets, verdicts."""
