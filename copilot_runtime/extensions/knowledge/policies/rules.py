"""The rules of a policy: the actors, actions and resources that each allows or denies.

Resources are named by patterns of URIs:

    common.Message.m1           exactly this resource
    common.Message.*            `*` is any run of characters but a slash
    common.Folder.hr/*          the direct children of the folder
    common.Folder.hr/**         the folder and all that is below it; `**` can only be the last part
    **                          everything
    common.User.{user}/**       `{user}`, `{agent}` and `{group}` are those of the actor

Resources of a user are shared by explicit patterns only: a pattern of an allow rule must start
with `common.User.` or `common.Conversation.` to match owned resources (`spare_owned`).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Literal, get_args

from copilot_runtime.extensions.knowledge.access import AccessAction, Actor
from copilot_runtime.extensions.knowledge.identifiers import (
    FOLDER,
    escape_name,
    identify_file,
    strip_namespace,
)
from copilot_runtime.extensions.knowledge.policies.ownership import CONVERSATION, USER, shorten_name

VARIABLES = ("user", "agent", "group")

NOTHING = "(?!)"
"""The regex that matches no text."""

_VARIABLE = re.compile(r"\{(\w*)\}")
_PART = "[^/.][^/]*+"
_REST = f"(?:/{_PART})*+"
_OWNED = (f"{USER}.", f"{CONVERSATION}.")
_NOT_OWNED = f"(?!{'|'.join(map(re.escape, _OWNED))})"

_DEEPEST = 40
"""Maximum nesting of groups in a regex, since `re` recurses into them."""

Values = Mapping[str, Sequence[str]]
"""Values of the variables of a pattern. A variable without values matches nothing."""

Tokens = tuple[str, ...]
"""Regexes that match one after the other: single characters, and wildcards."""


@dataclass(frozen=True)
class UriPattern:
    """Matches URIs of resources; see the head of this file."""

    text: str
    path: str = ""
    """The path of the files that it stands for, if a rule names files."""

    @cached_property
    def parts(self) -> tuple[str, ...]:
        """The parts between slashes."""
        return tuple(strip_namespace(self.text).split("/"))

    @cached_property
    def variables(self) -> Sequence[str]:
        """The names of the variables in braces."""
        return sorted({*_VARIABLE.findall(self.text)})

    @property
    def names_owned(self) -> bool:
        """Whether it names resources that belong to users, without a wildcard."""
        return self.parts[0].startswith(_OWNED)

    def find_problem(self) -> str:
        """Return why the pattern can match no resource, or an empty string."""
        *before, last = self.parts
        if any("**" in part for part in before) or ("**" in last and last != "**"):
            return "`**` can only be the last part: for a type of resource anywhere, use `types`"
        if unknown := [name for name in self.variables if name not in VARIABLES]:
            names = ", ".join(f"{{{name}}}" for name in VARIABLES)
            return f"there is no {{{unknown[0]}}}: the variables are {names}"
        return next(filter(None, map(_find_problem, self.parts)), "")

    def expand(self, values: Values, *, spare_owned: bool) -> Iterator[Tokens]:
        """Yield the tokens to match, for each combination of values of the variables.

        With `spare_owned`, a wildcard does not reach what belongs to a person.
        """
        guard = spare_owned and not self.names_owned
        for choice in product(*(values.get(name, ()) for name in self.variables)):
            chosen = dict(zip(self.variables, choice, strict=True))
            yield (*([_NOT_OWNED] if guard else []), *_tokens(self.parts, chosen))

    def covers(self, other: "UriPattern") -> bool:
        """Return whether it provably matches everything that another pattern matches."""
        for position, part in enumerate(self.parts):
            if part == "**":
                return True
            if position >= len(other.parts) or other.parts[position] == "**":
                return False
            if not _covers_part(part, other.parts[position]):
                return False
        return len(self.parts) == len(other.parts)


def list_file_patterns(path: str) -> tuple[UriPattern, ...]:
    """Return the patterns for a file or a folder, with all that is below it.

    The path is as `Source.name` has it; in its parts, `*` is any run of characters.
    """
    document = identify_file(path)
    folder = replace(document, type=FOLDER)
    return tuple(UriPattern(f"{one}/**", path) for one in (document, folder))


ANY_URI = UriPattern("**")


def tokens_below(uri: str) -> Tokens:
    """Return tokens that match a resource and its descendants."""
    return (*map(re.escape, uri), _REST)


def build_regex(sequences: Iterable[Tokens]) -> str:
    """Return a regex for any of the sequences of tokens."""
    ordered = sorted({*sequences})
    return _join(ordered, 0) if ordered else NOTHING


def matches_glob(glob: str, text: str) -> bool:
    """Return whether a text matches a glob, in which `*` is any run of characters."""
    return re.fullmatch("".join(_glob(glob, {}, ".")), text, re.DOTALL) is not None


def build_type_regex(types: Iterable[str]) -> str:
    """Return a lookahead regex that matches URIs of resources of the types."""
    names = "|".join("".join(_glob(type_, {}, "[^/.]")) for type_ in types)
    return rf"(?=(?>(?:.*/)?)(?:{names})\.[^/]*\Z)"


def _find_problem(part: str) -> str:
    """Return why a part of a pattern cannot be part of a URI, or an empty string."""
    plain = _VARIABLE.sub("x", part)
    if not plain or plain.startswith("."):
        return "a part between slashes is empty or begins with a dot"
    if "*" not in plain and plain.count(".") < 2:
        example = f"{plain}.*" if plain.count(".") == 1 else "common.Message.*"
        return f"{part!r} names no resource: a part is type.name, such as {example}"
    return ""


def _tokens(parts: Sequence[str], values: Mapping[str, str]) -> Iterator[str]:
    for position, part in enumerate(parts):
        if part == "**":
            yield _REST if position else _PART + _REST
            continue
        if position:
            yield "/"
        yield from [_PART] if part == "*" else _glob(part, values, "[^/]")


def _glob(text: str, values: Mapping[str, str], character: str) -> Iterator[str]:
    """Yield regexes for a text with stars; like those of `fnmatch`, they never go back."""
    first, *rest = (_substitute(piece, values) for piece in text.split("*"))
    yield from map(re.escape, first)
    for piece in rest[:-1]:
        yield f"(?>{character}*?{re.escape(piece)})"
    if rest:
        yield f"{character}*{re.escape(rest[-1])}"


def _substitute(text: str, values: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda found: escape_name(values[found[1]]), text) if values else text


def _join(sequences: Sequence[Tokens], depth: int) -> str:
    """Return a regex for any of the sorted sequences, which reads their common beginnings once."""
    if len(sequences) == 1:
        return "".join(sequences[0])
    if depth >= _DEEPEST:
        return f"(?:{'|'.join(map(''.join, sequences))})"
    length = _count_common(sequences[0], sequences[-1])
    branches: dict[Tokens, list[Tokens]] = {}
    for sequence in sequences:
        branches.setdefault(sequence[length : length + 1], []).append(sequence[length:])
    choice = "|".join(_join(branch, depth + 1) for branch in branches.values())
    return f"{''.join(sequences[0][:length])}(?:{choice})"


def _count_common(first: Tokens, last: Tokens) -> int:
    """Return the length of the common prefix of two sequences of tokens."""
    pairs = zip(first, last, strict=False)
    same = next((position for position, (a, b) in enumerate(pairs) if a != b), None)
    return min(len(first), len(last)) if same is None else same


def _covers_part(wide: str, narrow: str) -> bool:
    if wide in ("*", narrow):
        return True
    if "*" not in narrow:
        return re.fullmatch("".join(_glob(wide, {}, "[^/]")), narrow) is not None
    head, star, tail = wide.partition("*")
    return bool(star) and not tail and narrow.partition("*")[0].startswith(head)


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
            *(("any authenticated user" if it == "*" else f"user {it}") for it in self.users),
            *(f"group {it}" for it in self.groups),
        ]
        agents = " or ".join(f"agent {it}" for it in self.agents)
        through = f" through {agents}" if agents else ""
        return (" or ".join(people) or "all users") + through

    @property
    def what(self) -> str:
        """The resources, in words."""
        names = dict.fromkeys(pattern.path or pattern.text for pattern in self.patterns)
        patterns = " or ".join(names) or "everything"
        return f"{patterns} of type {' or '.join(self.types)}" if self.types else patterns

    @property
    def summary(self) -> str:
        """The actors and the resources that it names, in words."""
        whom = self.whom if self.users or self.groups or self.agents else ""
        what = self.what if self.patterns or self.types else ""
        return " with ".join(filter(None, (whom, what)))

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
        rest = f", except {self.exception.summary}" if self.exception else ""
        return f"{verb} {actions} of {self.scope.what} to {self.scope.whom}{rest}"

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
