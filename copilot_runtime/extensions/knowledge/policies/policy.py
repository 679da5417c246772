"""The interface of policies: a decision for each actor, action and resource."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from weakref import WeakKeyDictionary

from copilot_runtime.base.errors import ConfigurationFailed, Misuse
from copilot_runtime.extensions.knowledge.access import Access, AccessAction, AccessDenied, Actor
from copilot_runtime.extensions.knowledge.identifiers import Identifier

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision with its reason, which is for operators and not for the actor."""

    allowed: bool
    reason: str
    rule: str = ""
    """The deciding rule of the file, `ownership`, or empty for the default."""


@dataclass(frozen=True, slots=True)
class RuleCheck:
    """The result of checking one rule."""

    rule: str
    line: int
    effect: str
    applies: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision with all rule checks, for operators."""

    decision: Decision
    steps: Sequence[RuleCheck] = ()
    changes: Sequence[str] = ()
    """Changes that would reverse the decision."""


WRITE_URI = "Write the URI as type.name, with those of its parents before it and slashes between."
"""The hint for a malformed URI."""


@dataclass(frozen=True, slots=True)
class PolicyProblem:
    """An error or a warning in a policy file, with its position; line 0 is unknown."""

    message: str
    line: int = 0
    column: int = 0

    def describe(self, source: str) -> str:
        """Return the problem as one line of text."""
        places = (("line", self.line), ("column", self.column))
        place = "".join(f", {word} {number}" for word, number in places if number)
        return f"{source}{place}: {self.message}"


class PolicyUnreadable(ConfigurationFailed):
    """A policy file is invalid."""

    def __init__(self, path: Path, problems: Sequence[PolicyProblem]) -> None:
        lines = [problem.describe(str(path)) for problem in problems]
        super().__init__("\n".join(lines), hint=f"copilot-runtime knowledge policy check {path}")
        self.problems = problems


class Policy(ABC):
    """An access policy for resources.

    One object decides the same for ever. Where rules can change, as in a file, it gives another
    `generation` whenever they have. Methods are called from several threads.
    """

    is_immediate = False
    """Whether decisions take microseconds, so that the event loop may make them."""

    @property
    def generation(self) -> Hashable:
        """A value that changes whenever a decision may change."""
        return 0

    @abstractmethod
    def decide(self, actor: Actor, action: AccessAction, uri: str) -> Decision:
        """Return the decision for an actor, an action and a resource, by its URI alone."""

    def judge(self, actor: Actor, action: AccessAction, uris: Iterable[str]) -> list[bool]:
        """Return whether the action is allowed, for each resource."""
        return [self.decide(actor, action, uri).allowed for uri in uris]

    def access(self, actor: Actor, action: AccessAction) -> Access:
        """Return the access of an actor for an action. Cheap: call it for each operation."""
        return _PolicyAccess(self, actor, action)

    def check(self, actor: Actor, action: AccessAction, uris: Iterable[str]) -> None:
        """Raise `AccessDenied` unless the action is allowed for all resources."""
        if not all(self.access(actor, action).judge(uris)):
            raise AccessDenied

    def evaluate(self, request: object) -> bool:
        """Return whether `{actor, resources}` may be read: the question of Copilot-LD's libpolicy.

        Resources are URIs, or objects with `type`, `name` and `parent`. Raises `Misuse`.
        """
        if not isinstance(request, Mapping):
            raise Misuse("input is required")
        fields = cast("Mapping[str, Any]", request)
        name, resources = fields.get("actor"), fields.get("resources")
        if not (isinstance(name, str) and name):
            raise Misuse("input.actor must be a non-empty string")
        if isinstance(resources, str) or not isinstance(resources, Sequence):
            raise Misuse("input.resources must be an array")
        uris = [_read_uri(resource) for resource in cast("Sequence[object]", resources)]
        return all(self.access(Actor(name), "read").judge(uris))

    def explain(self, actor: Actor, action: AccessAction, uri: str) -> Explanation:
        """Return a decision with its explanation, as far as the policy supports it."""
        return Explanation(self.decide(actor, action, uri))

    def find_warnings(self) -> Sequence[PolicyProblem]:
        """Return warnings about the rules, such as a rule without effect."""
        return ()

    def find_idle_rules(self, uris: Collection[str]) -> Sequence[PolicyProblem]:  # noqa: ARG002
        """Return warnings about rules that hide none of the stored resources, as far as known."""
        return ()

    def close(self) -> None:  # noqa: B027
        """Release processes and other resources."""


class _PolicyAccess(Access):
    """The access of a policy; an exception counts as denial."""

    def __init__(self, policy: Policy, actor: Actor, action: AccessAction) -> None:
        self._policy = policy
        self._actor = actor
        self._action: AccessAction = action

    @property
    def key(self) -> Hashable:
        return self._policy, self._policy.generation, self._actor, self._action

    @property
    def immediate(self) -> Access | None:
        return self if self._policy.is_immediate else None

    def allows(self, uri: str) -> bool:
        return self.judge((uri,))[0]

    def judge(self, uris: Iterable[str]) -> list[bool]:
        uris = [*uris]
        try:
            allowed = self._policy.judge(self._actor, self._action, uris)
        except Exception as error:
            log_once(self._policy, "failed and denies", repr(error))
            allowed = []
        # an answer that is no boolean, or one for another question, allows nothing
        return [it is True for it in allowed] if len(allowed) == len(uris) else [False] * len(uris)


class AllowAll(Policy):
    """A policy that allows everything."""

    is_immediate = True

    def decide(self, actor: Actor, action: AccessAction, uri: str) -> Decision:  # noqa: ARG002
        return Decision(True, "Everything is allowed.")


ALLOW_ALL: Policy = AllowAll()
"""For a program that has no users, and for tests."""


def find_files(path: Path, suffix: str) -> list[Path]:
    """Return the files of a policy: one file, or those of a folder."""
    return sorted(path.glob(f"*{suffix}")) if path.is_dir() else [path]


def read_text(path: Path) -> str:
    """Return the text of a file. Raises `PolicyUnreadable`."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = "it is not UTF-8 text" if isinstance(error, ValueError) else error.strerror
        raise PolicyUnreadable(
            path, [PolicyProblem(f"it cannot be read: {reason or error}")]
        ) from error


def log_once(policy: Policy, what: str, detail: object) -> None:
    """Log a problem of a policy the first time it occurs."""
    lines = _LINES.setdefault(policy, set())
    if what not in lines:
        lines.add(what)
        logger.error("%s %s: %s", type(policy).__name__, what, detail)


_LINES: WeakKeyDictionary[Policy, set[str]] = WeakKeyDictionary()
"""Messages already logged for each policy."""


def _read_uri(resource: object) -> str:
    """Return the URI of a resource that a request names as text or as an object."""
    if isinstance(resource, str):
        return resource.removeprefix("cld:")
    if isinstance(resource, Identifier):
        return str(resource)
    fields = cast("Mapping[str, Any]", resource) if isinstance(resource, Mapping) else {}
    type_, name, parent = (str(fields.get(it) or "") for it in ("type", "name", "parent"))
    return str(Identifier(type_, name, parent))
