"""Assistants, threads and runs: an API that OpenAI itself closed on 26 August 2026."""

from copilot_runtime.adapters.openai.assistants.adapter import OpenAIAssistantsAdapter

__all__ = ["OpenAIAssistantsAdapter"]
