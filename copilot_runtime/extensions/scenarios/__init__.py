"""Tests of agents in files: a conversation, what is expected of it, and a report."""
