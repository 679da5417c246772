"""The adapter for models of Amazon Bedrock with the Converse API."""

from copilot_runtime.adapters.bedrock.adapter import BedrockAdapter

__all__ = ["BedrockAdapter"]
