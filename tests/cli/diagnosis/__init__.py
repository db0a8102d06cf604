"""Tests of bccnd/cli/diagnosis."""
