"""Tests of bccnd/core/wire."""
