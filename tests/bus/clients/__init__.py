"""Tests of bccnd/bus/clients."""
