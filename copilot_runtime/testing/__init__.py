"""Test utilities for applications: scripted models, a client, and timing of streams.

Importing `copilot_runtime` does not import this package, and this package does not import pytest;
`copilot_runtime.testing.fixtures` does, if `pytest_plugins` names it.
"""

from copilot_runtime.adapters.scripted import Gate, ScriptedAdapter
from copilot_runtime.testing.client import Client, Reply
from copilot_runtime.testing.connection import Response
from copilot_runtime.testing.protocols import ReplyFailed, ToolCall
from copilot_runtime.testing.scripted import (
    ScriptedAgent,
    ask,
    call,
    replace_adapter,
    say,
    set_state,
)
from copilot_runtime.testing.sync_client import SyncClient
from copilot_runtime.testing.timing import Timing, benchmark, format_timings

__all__ = [
    "Client",
    "Gate",
    "Reply",
    "ReplyFailed",
    "Response",
    "ScriptedAdapter",
    "ScriptedAgent",
    "SyncClient",
    "Timing",
    "ToolCall",
    "ask",
    "benchmark",
    "call",
    "format_timings",
    "replace_adapter",
    "say",
    "set_state",
]
