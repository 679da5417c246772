"""Any chat model or runnable of LangChain, and any function that answers as one does."""

from copilot_runtime.adapters.langchain.adapter import LangChainAdapter

__all__ = ["LangChainAdapter"]
