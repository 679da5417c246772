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
        if self.agents and not matches_any(self.agents, view.actor.agent):
            return False
        if not (self.users or self.groups):
            return True
        return matches_any(self.users, view.actor.name) or not view.groups.isdisjoint(self.groups)

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


def matches_any(globs: Iterable[str], name: str) -> bool:
    """Return whether a name is one of those; nobody's is none, not even with a star."""
    return bool(name) and any(matches_glob(glob, name) for glob in globs)
