"""Anthropic's Claude, and every server with the same Messages API."""

from copilot_runtime.adapters.anthropic.adapter import AnthropicAdapter

__all__ = ["AnthropicAdapter"]
