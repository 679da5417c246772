"""The rules of a policy: the actors, actions and resources that each allows or denies."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, get_args

from copilot_runtime.extensions.knowledge.access import AccessAction, Actor
from copilot_runtime.extensions.knowledge.policies.native.patterns import (
    ANY_URI,
    Tokens,
    UriPattern,
    Values,
    build_regex,
    build_type_regex,
    matches_glob,
)
from copilot_runtime.extensions.knowledge.policies.ownership import (
    shorten_name,
)

Effect = Literal["allow", "deny"]

ACTIONS: tuple[AccessAction, ...] = get_args(AccessAction)


@dataclass(frozen=True)
class ActorView:
    """An actor with the groups of the policy file, and the values of variables."""

    actor: Actor
    groups: frozenset[str]

    @cached_property
    def values(self) -> Values:
        """The values of the variables in patterns."""
        one = {"user": shorten_name(self.actor.name), "agent": self.actor.agent}
        values = {name: [value] if value else [] for name, value in one.items()}
        return {**values, "group": sorted(self.groups)}


@dataclass(frozen=True)
class Scope:
    """The actors and resources of a rule. An empty field matches all."""

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

    def includes(self, view: ActorView) -> bool:
        """Return whether the scope includes an actor."""
        if self.agents and not matches_any(self.agents, view.actor.agent):
            return False
        if not (self.users or self.groups):
            return True
        return matches_any(self.users, view.actor.name) or not view.groups.isdisjoint(self.groups)

    def expand(self, view: ActorView, *, spare_owned: bool = False) -> list[Tokens]:
        """Return the tokens that match its resources, for an actor."""
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
    """A rule that allows or denies actions on resources to actors."""

    effect: Effect
    actions: frozenset[AccessAction]
    scope: Scope = field(default_factory=Scope)
    exception: Scope | None = None
    """Actors and resources that the rule excludes, in combination."""
    name: str = ""
    line: int = 0
    column: int = 0

    @property
    def label(self) -> str:
        """The name or the line of the rule, for messages."""
        if self.name:
            return f"{self.name!r} (line {self.line})" if self.line else f"{self.name!r}"
        return f"on line {self.line}"

    @property
    def sentence(self) -> str:
        """The rule in words."""
        actions = ", ".join(action for action in ACTIONS if action in self.actions)
        verb = "allows" if self.effect == "allow" else "denies"
        rest = (
            f", except {self.exception.whom} with {self.exception.what}" if self.exception else ""
        )
        return f"{verb} {actions} to {self.scope.whom}, with {self.scope.what}{rest}"

    def applies(self, view: ActorView, action: AccessAction, uri: str) -> bool:
        """Return whether the rule applies to an actor, an action and a resource."""
        return action in self.actions and self.scope.includes(view) and self.matches(view, uri)

    def matches(self, view: ActorView, uri: str) -> bool:
        """Return whether the rule matches a resource, for an actor."""
        regex = self.guard(view) + build_regex(self.expand(view))
        return re.fullmatch(regex, uri, re.DOTALL) is not None

    def expand(self, view: ActorView) -> list[Tokens]:
        """Return the tokens that match its resources, apart from its guard."""
        return self.scope.expand(view, spare_owned=self.effect == "allow")

    def drop_exception(self) -> "Rule":
        """Return the rule without its exception."""
        return replace(self, exception=None)

    def guard(self, view: ActorView) -> str:
        """Return a regex that looks ahead for the types and for exceptions."""
        guard = self.scope.guard
        if self.exception and self.exception.includes(view):
            resources = build_regex(self.exception.expand(view))
            guard += rf"(?!{self.exception.guard}{resources}\Z)"
        return guard


def matches_any(globs: Iterable[str], name: str) -> bool:
    """Return whether a name matches any of the globs; an empty name never does."""
    return bool(name) and any(matches_glob(glob, name) for glob in globs)
