"""Commands that record, replay and evaluate journals."""
