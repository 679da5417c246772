"""The adapter for chat models and runnables of LangChain, and for functions."""

from copilot_runtime.adapters.langchain.adapter import LangChainAdapter

__all__ = ["LangChainAdapter"]
