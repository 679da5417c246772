"""Agents elsewhere that speak the Agent2Agent protocol (A2A)."""

from copilot_runtime.extensions.a2a.client.agent import A2aAgent

__all__ = ["A2aAgent"]
