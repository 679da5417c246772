"""All models of Amazon Bedrock that converse."""

from copilot_runtime.adapters.bedrock.adapter import BedrockAdapter

__all__ = ["BedrockAdapter"]
