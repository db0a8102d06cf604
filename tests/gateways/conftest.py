"""Scripted daemons for tests of gateways."""

from tests.client.conftest import bare

__all__ = ["bare"]
