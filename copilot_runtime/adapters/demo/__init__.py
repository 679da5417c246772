"""The model to try everything with: no network, no key, rules instead of intelligence."""

from copilot_runtime.adapters.demo.adapter import DemoAdapter

__all__ = ["DemoAdapter"]
