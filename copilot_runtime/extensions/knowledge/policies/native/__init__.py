"""Policies as rules in YAML."""

from copilot_runtime.extensions.knowledge.policies.native.document import read_rules
from copilot_runtime.extensions.knowledge.policies.native.policy import OWNERS_ONLY, NativePolicy
from copilot_runtime.extensions.knowledge.policies.native.rules import ACTIONS, Rule, Scope

__all__ = ["ACTIONS", "OWNERS_ONLY", "NativePolicy", "Rule", "Scope", "read_rules"]
