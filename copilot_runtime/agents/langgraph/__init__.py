"""Let a graph on a LangGraph server answer: LangGraph Platform, or `langgraph dev`."""

from copilot_runtime.agents.langgraph.agent import LangGraphAgent

__all__ = ["LangGraphAgent"]
