"""Policies in Rego, judged by regopy in a process of its own."""

from copilot_runtime.extensions.knowledge.policies.rego.policy import RegoPolicy

__all__ = ["RegoPolicy"]
