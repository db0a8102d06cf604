"""`make simulate`: runs fleets from seeds until the time is up, and prints what they have met."""

from __future__ import annotations

import sys

from tools.simulate import interposer

if not interposer.is_active():
    # A known fault replaces functions, which takes the uncompiled core.
    interposer.run_again(sys.argv[1:], uncompiled=any(word.startswith("--fault") for word in sys.argv[1:]))

from tools.simulate.command import main

sys.exit(main())
