"""Find rules that can never matter, and names that are probably misspelt."""

from collections.abc import Collection, Iterator, Sequence
from difflib import get_close_matches

from copilot_runtime.extensions.knowledge.policies.native.patterns import (
    ANY_URI,
    UriPattern,
    matches_glob,
)
from copilot_runtime.extensions.knowledge.policies.native.rules import Effect, Rule, Scope
from copilot_runtime.extensions.knowledge.policies.policy import PolicyProblem


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
    if reason := _contradict(rule.scope):
        yield f"can never match: {reason}"
    elif rule.exception and _covers(rule.exception, rule.scope):
        yield "can never match: its exception leaves out all that it is about"
    elif other := _find_wider(rules, position):
        verb = "denies" if other.effect == "deny" else "allows"
        never = "can never matter" if other.effect != rule.effect else "changes nothing"
        yield f"{never}: the rule {other.label} {verb} all that it is about"
    elif rule.effect == default == "allow" and not _names_owned(rule.scope):
        yield "changes nothing: the default allows what belongs to nobody"


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
