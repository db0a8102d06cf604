"""Defines what the bytes on a segment and on the local bus mean: datagrams, frames, identities, targets, verdicts."""
