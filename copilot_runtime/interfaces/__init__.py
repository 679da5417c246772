"""The interfaces everything hangs on. Read `run_input.py`, `agent.py` and `adapter.py` first."""

from copilot_runtime.interfaces.action import Action, ActionContext, ActionSource
from copilot_runtime.interfaces.adapter import Adapter, ChatRequest, ModelEndpoint
from copilot_runtime.interfaces.agent import Agent, Middleware
from copilot_runtime.interfaces.bus import START, Batch, Bus, Cursor, LogWriter
from copilot_runtime.interfaces.caller import Caller
from copilot_runtime.interfaces.embedder import Embedder
from copilot_runtime.interfaces.retrieval import Passage
from copilot_runtime.interfaces.run_input import (
    AgentInput,
    ContextItem,
    Parameters,
    Resume,
    RunInput,
)
from copilot_runtime.interfaces.stage import Stage

__all__ = [
    "START",
    "Action",
    "ActionContext",
    "ActionSource",
    "Adapter",
    "Agent",
    "AgentInput",
    "Batch",
    "Bus",
    "Caller",
    "ChatRequest",
    "ContextItem",
    "Cursor",
    "Embedder",
    "LogWriter",
    "Middleware",
    "ModelEndpoint",
    "Parameters",
    "Passage",
    "Resume",
    "RunInput",
    "Stage",
]
