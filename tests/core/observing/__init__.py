"""Tests of bccnd/core/observing."""
