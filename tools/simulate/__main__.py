"""`make simulate`: runs fleets from seeds until the time is up, and prints what they have met."""

from __future__ import annotations

import sys

from tools.simulate import interposer
from tools.simulate.command import main, names_fault

if not interposer.is_active():
    interposer.run_again(sys.argv[1:], uncompiled=names_fault(sys.argv[1:]))
main(prog_name="make simulate")
