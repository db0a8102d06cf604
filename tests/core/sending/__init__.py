"""Tests of bccnd/core/sending."""
