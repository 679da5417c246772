"""Access policies: ownership, rules in YAML, and the engines Cedar and Rego."""

from copilot_runtime.extensions.knowledge.access import AccessDenied, Actor
from copilot_runtime.extensions.knowledge.policies.file import POLICIES, PolicyFile, load_policy
from copilot_runtime.extensions.knowledge.policies.ownership import (
    build_actor,
    conversation_identifier,
    find_owner,
    narrow_access,
    user_identifier,
)
from copilot_runtime.extensions.knowledge.policies.policy import (
    ALLOW_ALL,
    Decision,
    Explanation,
    Policy,
)
from copilot_runtime.extensions.knowledge.policies.rule_policy import OWNERS_ONLY

__all__ = [
    "ALLOW_ALL",
    "OWNERS_ONLY",
    "POLICIES",
    "AccessDenied",
    "Actor",
    "Decision",
    "Explanation",
    "Policy",
    "PolicyFile",
    "build_actor",
    "conversation_identifier",
    "find_owner",
    "load_policy",
    "narrow_access",
    "user_identifier",
]
