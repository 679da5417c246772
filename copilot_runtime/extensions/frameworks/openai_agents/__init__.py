"""Runs an agent of OpenAI's Agents SDK in this process."""

from copilot_runtime.extensions.frameworks.openai_agents.agent import OpenAIAgentsAgent

__all__ = ["OpenAIAgentsAgent"]
