"""The tools of a request by the rules of the provider."""

from copilot_runtime.adapters.toolset.toolset import Toolset

__all__ = ["Toolset"]
