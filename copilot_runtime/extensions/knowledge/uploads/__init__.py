"""Files that people attach to their questions: stored under their owner, read, and searched."""
