"""Lists what there is to read: files, sessions, damaged files, and what retention has removed."""
