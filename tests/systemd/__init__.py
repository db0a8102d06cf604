"""Booted tests (`make test-systemd`): the package as it is shipped, on whole hosts that systemd has booted.

Nothing here imports the daemon: what runs is what was installed.
"""
