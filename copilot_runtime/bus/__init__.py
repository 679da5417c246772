"""Where the logs of runs are."""

BUSES = {"memory": "copilot_runtime.bus.memory:MemoryBus"}
"""Name → import string of every bus in this package, for the setting `bus`.

A plugin adds a name by an entry point of the group `copilot_runtime.bus`. Each is called with
`max_events`, `max_bytes` and `ttl`.
"""
