"""State that outlives the process: what systemd keeps while a daemon runs, and the image of a clean stop."""
