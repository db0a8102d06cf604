"""The commands: `bccnd`, the daemon, and `bccn`, the tool for people."""
