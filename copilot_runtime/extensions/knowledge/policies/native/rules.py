"""Rules, and the policy that they make.

A rule that denies wins over every rule that allows, wherever it stands: the order means nothing.
An owner may do everything with what belongs to them, unless a rule denies it. What no rule names
is decided by the default, and what belongs to somebody else is denied even if the default allows.
"""

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import Literal, get_args

from copilot_runtime.extensions.knowledge.access import Access, AccessAction, Actor
from copilot_runtime.extensions.knowledge.policies.native.patterns import (
    ANY_URI,
    NOTHING,
    Tokens,
    UriPattern,
    Values,
    build_regex,
    build_type_regex,
    matches_glob,
    tokens_below,
)
from copilot_runtime.extensions.knowledge.policies.ownership import (
    OWNERSHIP,
    WELL_FORMED,
    find_owner,
    owned_uris,
    owns,
    shorten_name,
)
from copilot_runtime.extensions.knowledge.policies.policy import (
    Decision,
    Explanation,
    Policy,
    Problem,
)

Effect = Literal["allow", "deny"]

ACTIONS: tuple[AccessAction, ...] = get_args(AccessAction)

_REMEMBERED = 2048
"""Of how many actors and actions the regexes stay in memory."""


@dataclass(frozen=True)
class View:
    """An actor as rules see it: with the groups of the file, and what variables stand for."""

    actor: Actor
    groups: frozenset[str]

    @cached_property
    def values(self) -> Values:
        """What stands for the variables of patterns."""
        one = {"user": shorten_name(self.actor.name), "agent": self.actor.agent}
        values = {name: [value] if value else [] for name, value in one.items()}
        return {**values, "group": sorted(self.groups)}


@dataclass(frozen=True)
class Scope:
    """Whom and what a rule is about. What is empty means all."""

    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    patterns: tuple[UriPattern, ...] = ()
    types: tuple[str, ...] = ()

    @property
    def whom(self) -> str:
        """The actors, in words."""
        people = [
            *(("anybody who has signed in" if it == "*" else f"user {it}") for it in self.users),
            *(f"group {it}" for it in self.groups),
        ]
        agents = " or ".join(f"agent {it}" for it in self.agents)
        through = f" through {agents}" if agents else ""
        return (" or ".join(people) or "everybody") + through

    @property
    def what(self) -> str:
        """The resources, in words."""
        patterns = " or ".join(pattern.text for pattern in self.patterns) or "everything"
        return f"{patterns} of type {' or '.join(self.types)}" if self.types else patterns

    def includes(self, view: View) -> bool:
        """Return whether it is about an actor."""
        if self.agents and not _matches_any(self.agents, view.actor.agent):
            return False
        if not (self.users or self.groups):
            return True
        return _matches_any(self.users, view.actor.name) or not view.groups.isdisjoint(self.groups)

    def expand(self, view: View, *, spare_owned: bool = False) -> list[Tokens]:
        """Return what matches its resources, for an actor."""
        patterns = self.patterns or (ANY_URI,)
        return [
            tokens
            for pattern in patterns
            for tokens in pattern.expand(view.values, spare_owned=spare_owned)
        ]

    @property
    def guard(self) -> str:
        """A regex that looks ahead for the types."""
        return build_type_regex(self.types) if self.types else ""


@dataclass(frozen=True)
class Rule:
    """Allows or denies actions to actors, with resources."""

    effect: Effect
    actions: frozenset[AccessAction]
    scope: Scope = field(default_factory=Scope)
    exception: Scope | None = None
    """Whom and what it leaves out, together."""
    name: str = ""
    line: int = 0
    column: int = 0

    @property
    def label(self) -> str:
        """What people call it."""
        if self.name:
            return f"{self.name!r} (line {self.line})" if self.line else f"{self.name!r}"
        return f"on line {self.line}"

    @property
    def sentence(self) -> str:
        """What it says, in words."""
        actions = ", ".join(action for action in ACTIONS if action in self.actions)
        verb = "allows" if self.effect == "allow" else "denies"
        rest = (
            f", except {self.exception.whom} with {self.exception.what}" if self.exception else ""
        )
        return f"{verb} {actions} to {self.scope.whom}, with {self.scope.what}{rest}"

    def applies(self, view: View, action: AccessAction, uri: str) -> bool:
        """Return whether it decides a question."""
        return action in self.actions and self.scope.includes(view) and self.matches(view, uri)

    def matches(self, view: View, uri: str) -> bool:
        """Return whether it is about a resource, for an actor."""
        regex = self.guard(view) + build_regex(self.expand(view))
        return re.fullmatch(regex, uri, re.DOTALL) is not None

    def expand(self, view: View) -> list[Tokens]:
        """Return what matches its resources, where its guard lets them through."""
        return self.scope.expand(view, spare_owned=self.effect == "allow")

    def drop_exception(self) -> "Rule":
        """Return the rule without what it leaves out."""
        return replace(self, exception=None)

    def guard(self, view: View) -> str:
        """Return a regex that looks ahead for the types and for exceptions."""
        guard = self.scope.guard
        if self.exception and self.exception.includes(view):
            resources = build_regex(self.exception.expand(view))
            guard += rf"(?!{self.exception.guard}{resources}\Z)"
        return guard


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
        self._remember = lru_cache(maxsize=_REMEMBERED)(partial(_RulesAccess, self))

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
        from copilot_runtime.extensions.knowledge.policies.native.explain import explain

        return explain(self, actor, action, uri)

    def find_warnings(self) -> Sequence[Problem]:
        from copilot_runtime.extensions.knowledge.policies.native.check import find_warnings

        return find_warnings(self)

    def view(self, actor: Actor) -> View:
        """Return an actor with all groups it is in."""
        named = {
            group for group, members in self.groups.items() if _matches_any(members, actor.name)
        }
        return View(actor, actor.groups | named)

    def _find_rule(self, effect: Effect, view: View, action: AccessAction, uri: str) -> Rule | None:
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

    def _join(self, effect: Effect, view: View, action: AccessAction, tokens: list[Tokens]) -> str:
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
"""Where nobody has set a policy: all may read what belongs to nobody, and only owners theirs."""


def _matches_any(globs: Iterable[str], name: str) -> bool:
    """Return whether a name is one of those; nobody's is none, not even with a star."""
    return bool(name) and any(matches_glob(glob, name) for glob in globs)
