"""The audit log: who did what, from where, and whether it was allowed."""
