"""OpenAI, and every server that speaks its chat completions API or its Responses API."""

from copilot_runtime.adapters.openai.adapter import OpenAIAdapter

__all__ = ["OpenAIAdapter"]
