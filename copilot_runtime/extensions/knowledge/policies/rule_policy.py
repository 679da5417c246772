"""Policies made of rules: their decisions, and the explanation of each.

A rule that denies wins over every rule that allows, wherever it stands: the order means nothing.
An owner may do everything with what belongs to them, unless a rule denies it. What no rule names
is decided by the default, and resources of other users are denied even if the default allows.
"""

import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Literal

from copilot_runtime.extensions.knowledge.access import Access, AccessAction, Actor
from copilot_runtime.extensions.knowledge.policies.idle_rules import (
    find_idle_rules,
    find_warnings,
)
from copilot_runtime.extensions.knowledge.policies.ownership import (
    OWNERSHIP,
    WELL_FORMED,
    find_owner,
    owned_uris,
    owns,
)
from copilot_runtime.extensions.knowledge.policies.policy import (
    WRITE_URI,
    Decision,
    Explanation,
    Policy,
    PolicyProblem,
    RuleCheck,
)
from copilot_runtime.extensions.knowledge.policies.rules import (
    ANY_URI,
    NOTHING,
    ActorView,
    Effect,
    Rule,
    Tokens,
    build_regex,
    matches_any,
    tokens_below,
)

_MOST_REMEMBERED = 2048
"""Maximum number of cached regexes, one for each actor and action."""


class NativePolicy(Policy):
    """Decides by rules."""

    def __init__(
        self,
        rules: Sequence[Rule],
        *,
        default: Effect = "deny",
        groups: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.rules = tuple(rules)
        self.default: Effect = default
        self.groups = dict(groups or {})
        self._remember = lru_cache(maxsize=_MOST_REMEMBERED)(partial(_RulesAccess, self))

    def access(self, actor: Actor, action: AccessAction) -> Access:
        return self._remember(actor, action)

    def judge(self, actor: Actor, action: AccessAction, uris: Iterable[str]) -> list[bool]:
        return self.access(actor, action).judge(uris)

    def decide(self, actor: Actor, action: AccessAction, uri: str) -> Decision:
        if not WELL_FORMED.fullmatch(uri):
            return Decision(False, f"{uri[:200]!r} is no URI of a resource.")
        view = self.view(actor)
        rule = self._find_rule("deny", view, action, uri)
        if rule is None and owns(actor, uri):
            return Decision(True, f"It belongs to {find_owner(uri)}.", OWNERSHIP)
        rule = rule or self._find_rule("allow", view, action, uri)
        if rule:
            reason = f"The rule {rule.label} {rule.sentence}."
            return Decision(rule.effect == "allow", reason, rule.name or f"line {rule.line}")
        if owner := find_owner(uri):
            reason = f"It belongs to {owner}, and no rule gives {action} of it to others."
            return Decision(False, reason, OWNERSHIP)
        reason = (
            f"No rule is about {action} of it by this actor, and the default is {self.default}."
        )
        return Decision(self.default == "allow", reason)

    def explain(self, actor: Actor, action: AccessAction, uri: str) -> Explanation:
        return explain(self, actor, action, uri)

    def find_warnings(self) -> Sequence[PolicyProblem]:
        return find_warnings(self.rules, self.default, self.groups)

    def find_idle_rules(self, uris: Collection[str]) -> Sequence[PolicyProblem]:
        return find_idle_rules(self.rules, uris)

    def view(self, actor: Actor) -> ActorView:
        """Return an actor with all groups it is in."""
        named = {
            group for group, members in self.groups.items() if matches_any(members, actor.name)
        }
        return ActorView(actor, actor.groups | named)

    def _find_rule(
        self, effect: Effect, view: ActorView, action: AccessAction, uri: str
    ) -> Rule | None:
        rules = (rule for rule in self.rules if rule.effect == effect)
        return next((rule for rule in rules if rule.applies(view, action, uri)), None)

    def compile(self, actor: Actor, action: AccessAction) -> re.Pattern[str]:
        """Return a regex of all URIs with which an actor may do something."""
        view = self.view(actor)
        tokens = [*map(tokens_below, owned_uris(actor))]
        if self.default == "allow":
            tokens += ANY_URI.expand({}, spare_owned=True)
        allows = self._join("allow", view, action, tokens)
        denies = self._join("deny", view, action, [])
        regex = f"(?:{allows})" if denies == NOTHING else rf"(?!(?:{denies})\Z)(?:{allows})"
        return re.compile(regex, re.DOTALL)

    def _join(
        self, effect: Effect, view: ActorView, action: AccessAction, tokens: list[Tokens]
    ) -> str:
        """Return one regex for all rules of an effect that are about an actor and an action."""
        special: list[str] = []
        for rule in self.rules:
            if rule.effect != effect or action not in rule.actions:
                continue
            if not rule.scope.includes(view):
                continue
            if guard := rule.guard(view):
                special.append(guard + build_regex(rule.expand(view)))
            else:
                tokens += rule.expand(view)
        if tokens or not special:
            special.append(build_regex(tokens))
        return "|".join(special)


class _RulesAccess(Access):
    """Judges a million URIs in less than a second. Many rules take some time at first."""

    def __init__(self, policy: NativePolicy, actor: Actor, action: AccessAction) -> None:
        self._policy = policy
        self._actor = actor
        self._action: AccessAction = action

    @property
    def key(self) -> Hashable:
        return self._policy, self._actor, self._action

    @property
    def immediate(self) -> Access | None:
        return self if "_match" in vars(self) else None

    @cached_property
    def _match(self) -> Callable[[str], object]:
        return self._policy.compile(self._actor, self._action).fullmatch

    def allows(self, uri: str) -> bool:
        return self._match(uri) is not None

    def judge(self, uris: Iterable[str]) -> list[bool]:
        return [found is not None for found in map(self._match, uris)]


OWNERS_ONLY: Policy = NativePolicy(
    [Rule("allow", frozenset[AccessAction](("read", "list")), name="public")]
)
"""The default policy: owners may do everything with their resources, all may read the rest."""


Miss = tuple[Literal["action", "actor", "resource", "owner"], str]
"""The part of a rule that does not match, and a readable reason."""


@dataclass(frozen=True)
class _Question:
    """A question to a policy, with the reasons why rules do not apply to it."""

    policy: NativePolicy
    view: ActorView
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
        """Whether the action is allowed without any rule."""
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
        """Return why a rule does not match the resource."""
        whole = rule.drop_exception()
        if rule.exception and whole.matches(self.view, self.uri):
            return "resource", f"it leaves out {rule.exception.summary}"
        names = {name for pattern in rule.scope.patterns for name in pattern.variables}
        if unset := sorted(name for name in names if not self.view.values[name]):
            return "resource", f"there is no {unset[0]} for the {{{unset[0]}}} of {rule.scope.what}"
        owner = find_owner(self.uri)
        if owner and replace(whole, effect="deny").matches(self.view, self.uri):
            return "owner", f"wildcards give away nothing that belongs to {owner}"
        return "resource", f"it is about {rule.scope.what}"


def explain(policy: NativePolicy, actor: Actor, action: AccessAction, uri: str) -> Explanation:
    """Return a decision with the check of each rule, and the changes that would reverse it."""
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
    """Yield the changes that would reverse a decision."""
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
    """Yield the changes that would allow an action that no rule denies."""
    for rule, misses in question.misses.items():
        if rule.effect == "allow" and len(misses) == 1 and misses[0][0] != "resource":
            yield f"The rule {rule.label} would allow it, but {misses[0][1]}."
    owner = find_owner(question.uri)
    pattern = f"{owner.uri}/**" if owner else question.uri
    yield f"A rule with 'allow: {question.action}' and 'resources: {pattern}' would allow it."


def _list(rules: Sequence[Rule]) -> str:
    return " and ".join(f"the rule {rule.label}" for rule in rules)
