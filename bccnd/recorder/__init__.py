"""The recorder: from the tap of the daemon to the journal, as a process of its own."""
