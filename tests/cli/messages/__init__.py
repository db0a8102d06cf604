"""Tests of bccnd/cli/messages."""
