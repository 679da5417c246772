"""The public interfaces and values. Read `run_input.py`, `agent.py` and `adapter.py` first."""

from copilot_runtime.api.action import Action, ActionContext, ActionSource
from copilot_runtime.api.adapter import Adapter, ChatRequest, Embedder, ModelEndpoint
from copilot_runtime.api.agent import Agent, Middleware, Stage
from copilot_runtime.api.bus import START, Batch, Bus, Cursor, LogWriter
from copilot_runtime.api.identity import Caller
from copilot_runtime.api.retrieval import Passage
from copilot_runtime.api.run_input import (
    AgentInput,
    ContextItem,
    Parameters,
    Resume,
    RunInput,
)

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
