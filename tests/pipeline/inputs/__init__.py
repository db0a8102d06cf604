"""Tests of bccnd/pipeline/inputs."""
