"""Tests of bccnd/core/trust."""
