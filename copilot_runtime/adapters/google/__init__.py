"""The adapter for Google's Gemini, at Google AI (an API key) and Vertex AI (a project)."""

from copilot_runtime.adapters.google.adapter import GoogleAdapter

__all__ = ["GoogleAdapter"]
