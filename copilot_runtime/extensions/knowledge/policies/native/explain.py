"""Say why rules decide as they do, and what would make them decide otherwise."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from copilot_runtime.extensions.knowledge.access import AccessAction, Actor
from copilot_runtime.extensions.knowledge.policies.native.rules import (
    Effect,
    NativePolicy,
    Rule,
    View,
)
from copilot_runtime.extensions.knowledge.policies.ownership import WELL_FORMED, find_owner, owns
from copilot_runtime.extensions.knowledge.policies.policy import (
    WRITE_URI,
    Decision,
    Explanation,
    RuleCheck,
)

Miss = tuple[Literal["action", "actor", "resource", "owner"], str]
"""What keeps a rule from a question, and the reason for people."""


@dataclass(frozen=True)
class _Question:
    """What was asked, with the rules and what keeps each of them from it."""

    policy: NativePolicy
    view: View
    action: AccessAction
    uri: str

    @cached_property
    def misses(self) -> Mapping[Rule, Sequence[Miss]]:
        return {rule: [*self._find_misses(rule)] for rule in self.policy.rules}

    def find_rules(self, effect: Effect) -> list[Rule]:
        """Return the rules of an effect that apply."""
        return [it for it in self.policy.rules if it.effect == effect and not self.misses[it]]

    @property
    def is_allowed_otherwise(self) -> bool:
        """Whether it is allowed where no rule says anything."""
        if find_owner(self.uri):
            return owns(self.view.actor, self.uri)
        return self.policy.default == "allow"

    def _find_misses(self, rule: Rule) -> Iterator[Miss]:
        if self.action not in rule.actions:
            yield "action", f"it is about {', '.join(sorted(rule.actions))}, not {self.action}"
        if not rule.scope.includes(self.view):
            yield "actor", f"it is for {rule.scope.whom}"
        if not rule.matches(self.view, self.uri):
            yield self._find_mismatch(rule)

    def _find_mismatch(self, rule: Rule) -> Miss:
        """Return why a rule is not about the resource."""
        whole = rule.drop_exception()
        if rule.exception and whole.matches(self.view, self.uri):
            exception = rule.exception
            return "resource", f"it leaves out {exception.whom} with {exception.what}"
        names = {name for pattern in rule.scope.patterns for name in pattern.variables}
        if unset := sorted(name for name in names if not self.view.values[name]):
            return "resource", f"there is no {unset[0]} for the {{{unset[0]}}} of {rule.scope.what}"
        owner = find_owner(self.uri)
        if owner and replace(whole, effect="deny").matches(self.view, self.uri):
            return "owner", f"wildcards give away nothing that belongs to {owner}"
        return "resource", f"it is about {rule.scope.what}"


def explain(policy: NativePolicy, actor: Actor, action: AccessAction, uri: str) -> Explanation:
    """Return a decision with what each rule had to say, and the changes that would turn it."""
    question = _Question(policy, policy.view(actor), action, uri)
    steps = [
        RuleCheck(
            rule.name,
            rule.line,
            rule.effect,
            not misses,
            "; ".join(reason for _, reason in misses) or f"it {rule.sentence}",
        )
        for rule, misses in question.misses.items()
    ]
    decision = policy.decide(actor, action, uri)
    return Explanation(decision, steps, [*_find_changes(question, decision)])


def _find_changes(question: _Question, decision: Decision) -> Iterator[str]:
    """Yield what would turn a decision."""
    denies, allows = question.find_rules("deny"), question.find_rules("allow")
    if not WELL_FORMED.fullmatch(question.uri):
        yield WRITE_URI
    elif decision.allowed:
        if allows and not question.is_allowed_otherwise:
            yield f"Without {_list(allows)} it would be denied."
        yield f"A rule with 'deny: {question.action}' for it wins over all that allow it."
    elif denies:
        rest = "" if allows or question.is_allowed_otherwise else ", and add one that allows it"
        yield f"Remove or narrow {_list(denies)}{rest}."
    else:
        yield from _find_ways_in(question)


def _find_ways_in(question: _Question) -> Iterator[str]:
    """Yield what would allow what no rule denies."""
    for rule, misses in question.misses.items():
        if rule.effect == "allow" and len(misses) == 1 and misses[0][0] != "resource":
            yield f"The rule {rule.label} would allow it, but {misses[0][1]}."
    owner = find_owner(question.uri)
    pattern = f"{owner.uri}/**" if owner else question.uri
    yield f"A rule with 'allow: {question.action}' and 'resources: {pattern}' would allow it."


def _list(rules: Sequence[Rule]) -> str:
    return " and ".join(f"the rule {rule.label}" for rule in rules)
