"""Reports of hosts about what they have sent and received, the matrix of receivers and senders, and what is wrong.

Pure decisions, as in `core`: bytes, counters and the time come in as arguments.
"""
