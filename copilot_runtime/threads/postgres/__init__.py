"""Threads in PostgreSQL: the store for servers on several machines."""

from copilot_runtime.threads.postgres.store import PostgresThreads

__all__ = ["PostgresThreads"]
