"""What tests of gateways share with those of the whole: networks of their own."""

from __future__ import annotations

from tests.e2e.conftest import net

__all__ = ["net"]
