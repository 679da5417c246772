"""Graphs of LangGraph: on a server, and in this process."""

from copilot_runtime.agents.langgraph.agent import LangGraphAgent

__all__ = ["LangGraphAgent"]
