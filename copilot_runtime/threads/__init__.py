"""Where conversations are stored."""

STORES = {
    "memory": "copilot_runtime.threads.memory:MemoryThreads",
    "sqlite": "copilot_runtime.threads.sqlite:SqliteThreads",
    "postgres": "copilot_runtime.threads.postgres:PostgresThreads",
    "postgresql": "copilot_runtime.threads.postgres:PostgresThreads",
}
"""Scheme of the `threads` setting → import string of every store in this package."""
