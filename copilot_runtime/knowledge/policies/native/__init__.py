"""Policies as rules in YAML."""

from copilot_runtime.knowledge.policies.native.document import read_rules
from copilot_runtime.knowledge.policies.native.rules import OWNERS_ONLY, NativePolicy, Rule, Scope

__all__ = ["OWNERS_ONLY", "NativePolicy", "Rule", "Scope", "read_rules"]
