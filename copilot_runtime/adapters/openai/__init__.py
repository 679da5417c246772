"""OpenAI, and every server with its chat completions API or its Responses API."""

from copilot_runtime.adapters.openai.adapter import OpenAIAdapter

__all__ = ["OpenAIAdapter"]
