"""Where conversations are stored."""

STORES = {
    "memory": "copilot_runtime.threads.memory:MemoryThreads",
    "sqlite": "copilot_runtime.threads.sqlite:SqliteThreads",
    "postgres": "copilot_runtime.threads.postgres:PostgresThreads",
    "postgresql": "copilot_runtime.threads.postgres:PostgresThreads",
}
"""Scheme of the `threads` setting → import string of every store in this package."""

BUSES = {"memory": "copilot_runtime.threads.run_log:MemoryBus"}
"""Name → import string of every bus in this package, for the setting `bus`.

A plugin adds a name by an entry point of the group `copilot_runtime.bus`. Each is called with
`max_events`, `max_bytes` and `ttl`.
"""
