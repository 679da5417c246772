"""The base of policies in Cedar and Rego: engines that judge batches, and may fail.

Ownership comes first: resources of other users are always denied, whatever the engine decides, and
an owner may do everything that the engine does not forbid. An unclear answer of the engine denies,
and is logged once.
"""

from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from copilot_runtime.base.jsontext import loads
from copilot_runtime.base.jsonvalue import JsonValue
from copilot_runtime.extensions.knowledge.access import AccessAction, Actor
from copilot_runtime.extensions.knowledge.identifiers import find_path, unescape_name
from copilot_runtime.extensions.knowledge.policies.ownership import (
    OWNERSHIP,
    WELL_FORMED,
    find_owner,
    owns,
)
from copilot_runtime.extensions.knowledge.policies.policy import (
    WRITE_URI,
    Decision,
    Explanation,
    Policy,
    PolicyProblem,
    PolicyUnreadable,
    log_once,
    read_text,
)

_BATCH = 1000
REMEMBERED_ANSWERS = 500_000
"""Maximum number of cached answers: some 50 MB."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict of an engine on one resource."""

    permits: bool = False
    forbids: bool = False
    rules: Sequence[str] = ()
    """The policies that decided, by name."""
    errors: Sequence[str] = ()
    """Errors of the evaluation; with any, nothing is permitted."""


class EnginePolicy(Policy):
    """A policy that is evaluated by an external engine."""

    def __init__(self) -> None:
        self._answers: OrderedDict[tuple[Actor, AccessAction], dict[str, bool]] = OrderedDict()
        self._count = 0
        self._lock = Lock()
        self._failures = 0

    @property
    def generation(self) -> int:
        """A number that changes after a failure of the engine, so that denials are judged again."""
        return self._failures

    @abstractmethod
    def ask(self, actor: Actor, action: AccessAction, uris: Sequence[str]) -> Sequence[Verdict]:
        """Return the verdict of the engine for each resource. It may raise."""

    def decide(self, actor: Actor, action: AccessAction, uri: str) -> Decision:
        return self.explain(actor, action, uri).decision

    def explain(self, actor: Actor, action: AccessAction, uri: str) -> Explanation:
        owner = find_owner(uri)
        if not WELL_FORMED.fullmatch(uri):
            return _explain(False, f"{uri[:200]!r} is no URI of a resource.", WRITE_URI)
        if owner and not owns(actor, uri):
            change = "No policy of this kind gives it to others; a rule in YAML that names it does."
            return _explain(False, f"It belongs to {owner}.", change, OWNERSHIP)
        verdict = (self._ask(actor, action, [uri]) or [Verdict(errors=("it did not answer",))])[0]
        rule = ", ".join(verdict.rules)
        names = f": {rule}" if rule else ""
        if verdict.errors:
            change = "Correct the policy: whatever fails denies."
            return _explain(False, f"The policy failed: {verdict.errors[0]}", change, rule)
        if verdict.forbids:
            change = f"Remove or narrow what forbids it{names}."
            return _explain(False, f"A policy forbids it{names}.", change, rule)
        win = f"A policy that forbids {action} of it wins over all that permit it."
        if owner:
            reason = f"It belongs to {owner}, and no policy forbids it."
            return _explain(True, reason, win, OWNERSHIP)
        if verdict.permits:
            return _explain(True, f"A policy permits it{names}.", win, rule)
        change = f"A policy that permits {action} of it to this actor would allow it."
        return _explain(False, "No policy permits it.", change)

    def judge(self, actor: Actor, action: AccessAction, uris: Iterable[str]) -> list[bool]:
        uris = [*uris]
        answers = self._recall(actor, action)
        new = [uri for uri in dict.fromkeys(uris) if uri not in answers]
        found: dict[str, bool] = {}
        for start in range(0, len(new), _BATCH):
            found |= self._judge_batch(actor, action, new[start : start + _BATCH])
        allowed = [found[uri] if uri in found else answers.get(uri, False) for uri in uris]
        self._remember(actor, action, found)
        return allowed

    def _judge_batch(
        self, actor: Actor, action: AccessAction, uris: Sequence[str]
    ) -> dict[str, bool]:
        """Return the cacheable answers; undecided cases are denied."""
        owned = {uri for uri in uris if find_owner(uri)}
        answers = dict.fromkeys(uris, False)
        candidates = [
            uri
            for uri in uris
            if WELL_FORMED.fullmatch(uri) and (uri not in owned or owns(actor, uri))
        ]
        verdicts = self._ask(actor, action, candidates)
        for uri in candidates if not verdicts else ():
            del answers[uri]
        for uri, verdict in zip(candidates, verdicts, strict=False):
            permits = not verdict.errors and not verdict.forbids
            answers[uri] = permits and (verdict.permits or uri in owned)
        return answers

    def _ask(self, actor: Actor, action: AccessAction, uris: Sequence[str]) -> Sequence[Verdict]:
        """Return verdicts, or an empty sequence if the engine raises or panics."""
        if not uris:
            return ()
        try:
            verdicts = self.ask(actor, action, uris)
            if len(verdicts) != len(uris):
                raise ValueError(f"{len(verdicts)} answers to {len(uris)} questions")
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic of Rust is no `Exception`
            self._failures += 1
            log_once(self, "failed and denies", repr(error))
            return ()
        for text in [text for verdict in verdicts for text in verdict.errors][:1]:
            log_once(self, "denies, because a policy failed", text)
        return verdicts

    def _recall(self, actor: Actor, action: AccessAction) -> Mapping[str, bool]:
        """Return the cached answers for an actor and an action."""
        with self._lock:
            if answers := self._answers.get((actor, action)):
                self._answers.move_to_end((actor, action))
            return answers or {}

    def _remember(self, actor: Actor, action: AccessAction, answers: Mapping[str, bool]) -> None:
        """Cache answers, and evict the least recently used ones."""
        if not answers:
            return
        with self._lock:
            so_far = self._answers.setdefault((actor, action), {})
            before = len(so_far)
            so_far.update(answers)
            self._count += len(so_far) - before
            self._answers.move_to_end((actor, action))
            while self._count > REMEMBERED_ANSWERS:
                _, oldest = self._answers.popitem(last=False)
                self._count -= len(oldest)


def _explain(allowed: bool, reason: str, change: str, rule: str = "") -> Explanation:
    return Explanation(Decision(allowed, reason, rule), changes=[change])


def describe_resource(uri: str) -> dict[str, str]:
    """Return the attributes of a resource that engines see, from its URI."""
    parent, _, last = uri.rpartition("/")
    words = last.split(".")
    owner = find_owner(uri)
    return {
        "uri": uri,
        "type": ".".join(words[:2]),
        "name": unescape_name(words[-1]),
        "parent": parent,
        "path": find_path(uri),
        "owner": owner.name if owner and owner.kind == "user" else "",
    }


def read_json(path: Path) -> JsonValue:
    """Return the JSON of a file, or None where there is none. Raises `PolicyUnreadable`."""
    if not path.is_file():
        return None
    try:
        return loads(read_text(path).encode())
    except ValueError as error:
        raise PolicyUnreadable(path, [PolicyProblem(f"not JSON: {error}")]) from error
