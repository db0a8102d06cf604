"""Booted tests (`make test-systemd`): the package as it is shipped, on whole hosts that systemd has booted."""
