"""Pure decisions: bytes, numbers and the time come in as arguments; no socket, clock, log or thread in here."""
