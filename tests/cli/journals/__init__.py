"""Tests of bccnd/cli/journals."""
