"""Tests of bccnd/core/matching."""
