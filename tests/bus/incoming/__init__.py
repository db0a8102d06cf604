"""Tests of bccnd/bus/incoming."""
