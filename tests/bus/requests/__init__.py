"""Tests of bccnd/bus/requests."""
