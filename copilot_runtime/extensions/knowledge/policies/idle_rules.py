"""Warnings about rules that hide or change nothing."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from glob import iglob
from unicodedata import normalize

from copilot_runtime.extensions.knowledge.identifiers import (
    CHUNK,
    DOCUMENT,
    FOLDER,
    THING,
    read_name,
)
from copilot_runtime.extensions.knowledge.policies.ownership import CONVERSATION, UPLOAD, USER
from copilot_runtime.extensions.knowledge.policies.policy import PolicyProblem
from copilot_runtime.extensions.knowledge.policies.rules import (
    ANY_URI,
    Effect,
    Rule,
    Scope,
    Tokens,
    UriPattern,
    build_regex,
    matches_glob,
)

_LITERAL = re.compile(r"[?\[]")
"""Characters of a path that have no meaning in a rule, as they have in `glob`."""
_VARIABLE = re.compile(r"\{\w*\}")
_SLASH = re.compile("/")
_UNSTORED = (USER, CONVERSATION, UPLOAD, "common.Assistant", "tool.ToolFunction")
"""Types of resources that are stored later, or never."""


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
        if not _is_on_disk(path):
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


def _is_on_disk(path: str) -> bool:
    """Return whether a file or a folder has a path, whose letters may be in NFC or NFD there."""
    pattern = _LITERAL.sub(r"[\g<0>]", path)
    parts = (it if it.isascii() and "\\" not in it else "*" for it in pattern.split("/"))
    found = iglob("/".join(parts), include_hidden=True)  # noqa: PTH207 - also whole paths
    pattern = normalize("NFC", pattern)
    return any(fnmatchcase(normalize("NFC", read_name(it)), pattern) for it in found)


def find_idle_rules(rules: Sequence[Rule], uris: Collection[str]) -> list[PolicyProblem]:
    """Return a warning for each name by which a rule hides no text of the resources `uris`."""
    return [
        PolicyProblem(f"the rule {rule.label} {reason}", rule.line, rule.column)
        for rule in rules
        for reason in _find_idle_names(rule, uris)
    ]


def _find_idle_names(rule: Rule, uris: Collection[str]) -> Iterator[str]:
    scope = rule.scope if rule.effect == "deny" else rule.exception
    if scope is None or not uris or any(it.startswith(_UNSTORED) for it in scope.types):
        return
    named: dict[str, list[UriPattern]] = {}
    for pattern in scope.patterns or (ANY_URI,):
        # `find_warnings` names a path that does not exist
        is_absent = bool(pattern.path) and not scope.types and not _is_on_disk(pattern.path)
        if not pattern.text.startswith(_UNSTORED) and not is_absent:
            named.setdefault(pattern.path or pattern.text, []).append(pattern)
    for patterns in named.values():
        one = replace(scope, patterns=tuple(patterns))
        regex = re.compile(one.guard + build_regex(_expand(patterns)), re.DOTALL)
        if any(map(regex.fullmatch, uris)):
            continue
        what = one.what if scope.patterns else scope.what
        names = (uri[: found.start()] for uri in uris for found in _SLASH.finditer(uri))
        if not any(map(regex.fullmatch, names)):
            yield f"hides nothing: {what} matches no resource"
        elif "read" in rule.actions:
            yield (
                f"hides names alone: {what} matches what texts are in, and not the texts, "
                f"whose type is {CHUNK}"
            )


def _expand(patterns: Iterable[UriPattern]) -> Iterator[Tokens]:
    """Yield the tokens of patterns, with a wildcard for each variable."""
    for pattern in patterns:
        anyone = UriPattern(_VARIABLE.sub("*", pattern.text))
        yield from anyone.expand({}, spare_owned=False)


def _contradict(scope: Scope) -> str:
    """Return why no resource is of these types and matches these patterns."""
    if not scope.types or not scope.patterns:
        return ""
    if any(_may_have_type(it, type_) for it in scope.patterns for type_ in scope.types):
        return ""
    return f"nothing that {scope.what.partition(' of type ')[0]} matches is of that type"


def _may_have_type(pattern: UriPattern, type_: str) -> bool:
    if pattern.path:
        return any(matches_glob(type_, it) for it in (FOLDER, DOCUMENT, CHUNK, THING))
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
