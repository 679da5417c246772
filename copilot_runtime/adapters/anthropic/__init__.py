"""Anthropic's Claude, and every server that speaks its Messages API."""

from copilot_runtime.adapters.anthropic.adapter import AnthropicAdapter

__all__ = ["AnthropicAdapter"]
