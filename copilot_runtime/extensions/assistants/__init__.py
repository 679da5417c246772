"""Assistants: agents that an operator writes as files."""
