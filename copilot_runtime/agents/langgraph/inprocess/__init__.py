"""Compiled graphs of LangGraph, in this process."""

from copilot_runtime.agents.langgraph.inprocess.agent import LangGraphInProcessAgent

__all__ = ["LangGraphInProcessAgent"]
