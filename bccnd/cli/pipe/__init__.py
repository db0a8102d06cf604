"""`bccn pipe`: the bus by JSON lines on standard input and output, for programs in any language."""
