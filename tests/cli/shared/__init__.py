"""Tests of bccnd/cli/shared."""
