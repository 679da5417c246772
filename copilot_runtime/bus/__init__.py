"""Where the logs of runs are kept."""

BUSES = {"memory": "copilot_runtime.bus.memory:MemoryBus"}
"""Name → import string of every bus in this package."""
