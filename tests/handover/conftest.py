"""Hand-over tests need the compiled build: a plain build keeps nothing over a restart."""

from bccnd.native.buffers import scan

collect_ignore_glob = [] if scan.COMPILED else ["test_*.py"]
