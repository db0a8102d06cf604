"""`make simulate`: runs fleets from seeds until the time is up, and prints what they have met."""

from __future__ import annotations

import sys

from tools.simulate import interposer
from tools.simulate.command import main, package_of

if not interposer.is_active():
    interposer.run_again(sys.argv[1:], package_of(sys.argv[1:]))
main(prog_name="make simulate")
