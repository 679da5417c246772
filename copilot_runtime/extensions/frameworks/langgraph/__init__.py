"""Graphs of LangGraph: on a server, and in this process."""

from copilot_runtime.extensions.frameworks.langgraph.agent import LangGraphAgent

__all__ = ["LangGraphAgent"]
