"""What tests of gateways share with those of the whole: networks of their own, and scripted daemons."""

from __future__ import annotations

from tests.client.conftest import bare
from tests.e2e.conftest import net

__all__ = ["bare", "net"]
