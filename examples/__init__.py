"""Programs that show what bccnd does."""
