"""The demo model: it needs neither network nor key, and answers by fixed rules."""

from copilot_runtime.adapters.demo.adapter import DemoAdapter

__all__ = ["DemoAdapter"]
