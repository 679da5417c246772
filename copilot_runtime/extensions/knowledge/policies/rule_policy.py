"""Policies made of rules: their decisions, and the explanation of each.

A rule that denies wins over every rule that allows, wherever it stands: the order means nothing.
An owner may do everything with what belongs to them, unless a rule denies it. What no rule names
is decided by the default, and resources of other users are denied even if the default allows.
"""

import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property, lru_cache, partial
from glob import iglob
from typing import Literal

from copilot_runtime.extensions.knowledge.access import Access, AccessAction, Actor
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
    Scope,
    Tokens,
    UriPattern,
    build_regex,
    matches_any,
    matches_glob,
    tokens_below,
)

_LITERAL = re.compile(r"[?\[]")
"""Characters of a path that have no meaning in a rule, as they have in `glob`."""

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


def find_warnings(
    rules: Sequence[Rule], default: Effect, groups: Collection[str]
) -> list[PolicyProblem]:
    """Return a warning for each rule without effect and each undefined group, in their order.

    `groups` are the names of the groups that the file defines.
    """
    return [
        PolicyProblem(f"the rule {rule.label} {reason}", rule.line, rule.column)
        for position, rule in enumerate(rules)
        for reason in _find_reasons(rules, default, groups, position)
    ]


def _find_reasons(
    rules: Sequence[Rule], default: Effect, groups: Collection[str], position: int
) -> Iterator[str]:
    rule = rules[position]
    named = {*rule.scope.groups, *(rule.exception.groups if rule.exception else ())}
    for group in sorted(named):
        if group not in groups:
            close = get_close_matches(group, groups, n=1)
            guess = f"; did you mean {close[0]!r}?" if close else ""
            yield (
                f"names the group {group!r}, which the file does not define: "
                f"only actors whom the application puts into it are meant{guess}"
            )
    scopes = (rule.scope, rule.exception or Scope())
    for path in dict.fromkeys(it.path for scope in scopes for it in scope.patterns if it.path):
        found = iglob(_LITERAL.sub(r"[\g<0>]", path), include_hidden=True)  # noqa: PTH207 - also whole paths
        if not any(found):
            yield f"names {path!r}, which is no file or folder in the directory of the server"
    if reason := _contradict(rule.scope):
        yield f"can never match: {reason}"
    elif rule.exception and _covers(rule.exception, rule.scope):
        yield "can never match: its exception leaves out all that it is about"
    elif other := _find_wider(rules, position):
        verb = "denies" if other.effect == "deny" else "allows"
        never = "can never matter" if other.effect != rule.effect else "changes nothing"
        yield f"{never}: the rule {other.label} {verb} all that it is about"
    elif rule.effect == default == "allow" and not _names_owned(rule.scope):
        yield "changes nothing: the default allows resources without an owner"


def _contradict(scope: Scope) -> str:
    """Return why no resource is of these types and matches these patterns."""
    if not scope.types or not scope.patterns:
        return ""
    if any(_may_have_type(it, type_) for it in scope.patterns for type_ in scope.types):
        return ""
    return f"nothing that {scope.what.partition(' of type ')[0]} matches is of that type"


def _may_have_type(pattern: UriPattern, type_: str) -> bool:
    last = pattern.parts[-1]
    words = last.split(".")
    if "**" in last or "*" in "".join(words[:2]) or "{" in "".join(words[:2]):
        return True
    own = ".".join(words[:2])
    return matches_glob(type_, own)


def _find_wider(rules: Sequence[Rule], position: int) -> Rule | None:
    """Return a rule that decides every case of another one: it denies, or has the same effect."""
    rule = rules[position]
    for place, other in enumerate(rules):
        if other is rule or other.exception or not rule.actions <= other.actions:
            continue
        if not _covers(other.scope, rule.scope) or _is_guarded(other, rule):
            continue
        if other.effect == "deny" != rule.effect:
            return other
        same = other.effect == rule.effect
        twice = _covers(rule.scope, other.scope) and rule.actions == other.actions
        if same and (not twice or place < position):
            return other
    return None


def _is_guarded(wide: Rule, narrow: Rule) -> bool:
    """Return whether a rule names owned resources that the wildcards of the wider one spare."""
    return wide.effect == "allow" and _names_owned(narrow.scope) and not _names_owned(wide.scope)


def _covers(wide: Scope, narrow: Scope) -> bool:
    """Return whether a scope provably includes all of another one."""
    return (
        _covers_names(wide.agents, narrow.agents)
        and _covers_people(wide, narrow)
        and _covers_names(wide.types, narrow.types)
        and all(
            any(pattern.covers(other) for pattern in wide.patterns or (ANY_URI,))
            for other in narrow.patterns or (ANY_URI,)
        )
    )


def _covers_people(wide: Scope, narrow: Scope) -> bool:
    if not (wide.users or wide.groups):
        return True
    if not (narrow.users or narrow.groups) or not {*narrow.groups} <= {*wide.groups}:
        return False
    return all(any(matches_glob(glob, user) for glob in wide.users) for user in narrow.users)


def _covers_names(wide: tuple[str, ...], narrow: tuple[str, ...]) -> bool:
    if not wide:
        return True
    return bool(narrow) and all(any(matches_glob(it, name) for it in wide) for name in narrow)


def _names_owned(scope: Scope) -> bool:
    """Return whether a scope names resources that belong to users."""
    return any(pattern.names_owned for pattern in scope.patterns)
