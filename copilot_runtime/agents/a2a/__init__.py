"""Agents elsewhere that speak the Agent2Agent protocol (A2A)."""

from copilot_runtime.agents.a2a.agent import A2aAgent

__all__ = ["A2aAgent"]
