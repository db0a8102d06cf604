"""Tests of bccnd/core/tracking."""
