"""Tests of bccnd/pipeline/counting."""
