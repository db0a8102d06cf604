"""The tests, laid out like the source; `e2e` starts real daemons and real clients."""
