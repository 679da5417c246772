"""Who answers."""

AGENTS = {"direct": "copilot_runtime.agents.direct:DirectAgent"}
"""Name → import string of every agent kind in this package."""
