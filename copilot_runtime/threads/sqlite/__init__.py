"""Threads in a file of SQLite: the store for one machine, with any number of servers."""

from copilot_runtime.threads.sqlite.store import SqliteThreads

__all__ = ["SqliteThreads"]
