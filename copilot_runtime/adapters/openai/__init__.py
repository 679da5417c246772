"""The adapter for OpenAI, and for servers with its chat completions or Responses API."""

from copilot_runtime.adapters.openai.adapter import OpenAIAdapter

__all__ = ["OpenAIAdapter"]
