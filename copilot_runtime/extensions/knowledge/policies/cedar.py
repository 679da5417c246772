"""Policies in Cedar, judged by cedarpy.

A policy is a file, or a folder of files and perhaps an `entities.json` with users and groups in
Cedar's form. `SCHEMA` has what policies may name. Nothing is permitted that no policy permits.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from copilot_runtime.base.errors import MissingPackage
from copilot_runtime.base.jsonvalue import JsonObject, as_list, as_object
from copilot_runtime.extensions.knowledge.access import AccessAction, Actor
from copilot_runtime.extensions.knowledge.policies.engine import (
    EnginePolicy,
    Verdict,
    describe_resource,
    read_json,
)
from copilot_runtime.extensions.knowledge.policies.policy import (
    PolicyProblem,
    PolicyUnreadable,
    find_files,
    read_text,
)

if TYPE_CHECKING:
    import cedarpy

SCHEMA = """\
entity Group;
entity User in [Group] {
  name: String,
  signedIn: Bool,
};
entity Resource in [Resource] {
  uri: String,
  type: String,
  name: String,
  path: String,
  owner?: User,
};
action read, list, write, delete appliesTo {
  principal: [User],
  resource: [Resource],
  context: { agent: String, conversation: String },
};
"""
"""The Cedar schema of policies. A resource is in its parents: `resource in Resource::"a.Folder.x"`.

`path` is that of a file, also for the pieces of its text, and empty for other resources.
Anonymous users are `User::""`. `context.agent` is the agent that acts for the user.
"""


_TOKEN = re.compile(r"""(?P<blank>\s+|//[^\n]*)|"(?:[^"\\]|\\.)*"|(?P<end>;)|[^\s";]""", re.DOTALL)


class CedarPolicy(EnginePolicy):
    """Policies in Cedar."""

    def __init__(self, text: str, entities: Sequence[JsonObject] = ()) -> None:
        super().__init__()
        self._text = text
        self._policies = _import_cedarpy().PolicySet.from_str(text)
        self._entities = {_read_uid(entity): entity for entity in entities}

    @classmethod
    def read(cls, path: Path) -> "CedarPolicy":
        """Read a file or a folder. Raises `PolicyUnreadable`, `MissingPackage`."""
        cedarpy = _import_cedarpy()
        texts: list[str] = []
        for file in find_files(path, ".cedar"):
            texts.append(read_text(file))
            problems: list[PolicyProblem] = []
            for line, column, policy in _split(texts[-1]):
                try:
                    cedarpy.PolicySet.from_str(policy)
                except ValueError as error:
                    problems.append(
                        PolicyProblem(f"this policy is not Cedar: {error}", line, column)
                    )
            if problems or not _split(texts[-1]):
                raise PolicyUnreadable(
                    file, problems or [PolicyProblem("there is no policy in it")]
                )
        source = path / "entities.json"
        found = read_json(source) if path.is_dir() else None
        entities = [*map(as_object, as_list(found))]
        if found is not None and (not isinstance(found, list) or not all(map(_read_uid, entities))):
            problem = PolicyProblem(
                'expected a list of entities: [{"uid": {"type": "User", "id": …}, …}]'
            )
            raise PolicyUnreadable(source, [problem])
        return cls("\n".join(texts), entities)

    def ask(self, actor: Actor, action: AccessAction, uris: Sequence[str]) -> Sequence[Verdict]:
        cedarpy = _import_cedarpy()
        principal = {"type": "User", "id": actor.name}
        context = json.dumps({"agent": actor.agent, "conversation": actor.conversation})
        requests: list[dict[str, Any]] = [
            {
                "principal": principal,
                "action": {"type": "Action", "id": action},
                "resource": {"type": "Resource", "id": uri},
                "context": context,
            }
            for uri in uris
        ]
        entities = [*self._describe_actor(actor), *map(_describe, uris)]
        results = cedarpy.is_authorized_batch(requests, self._policies, json.dumps(entities))
        return [*map(_read_result, results)]

    def find_warnings(self) -> Sequence[PolicyProblem]:
        result = _import_cedarpy().validate_policies(self._text, SCHEMA)
        places = {f"policy{n}": place[:2] for n, place in enumerate(_split(self._text))}
        return [PolicyProblem(it.error, *places.get(it.policy_id, ())) for it in result.errors]

    def _describe_actor(self, actor: Actor) -> list[JsonObject]:
        """Return the entity of the user with its groups, and the other entities of the file."""
        uid = ("User", actor.name)
        stored = self._entities.get(uid, {})
        parents = [*as_list(stored.get("parents"))]
        parents += [{"type": "Group", "id": group} for group in sorted(actor.groups)]
        own: JsonObject = {"name": actor.name, "signedIn": bool(actor.name)}
        user: JsonObject = {
            "uid": {"type": "User", "id": actor.name},
            "attrs": {**as_object(stored.get("attrs")), **own},
            "parents": parents,
        }
        return [user, *(entity for key, entity in self._entities.items() if key != uid)]


def _describe(uri: str) -> JsonObject:
    """Return a resource as an entity, below all of its parents."""
    fields = describe_resource(uri)
    parts = uri.split("/")
    parents = ["/".join(parts[:length]) for length in range(1, len(parts))]
    attributes: JsonObject = {name: fields[name] for name in ("uri", "type", "name", "path")}
    if owner := fields["owner"]:
        attributes["owner"] = {"__entity": {"type": "User", "id": owner}}
    return {
        "uid": {"type": "Resource", "id": uri},
        "attrs": attributes,
        "parents": [{"type": "Resource", "id": parent} for parent in parents],
    }


def _read_result(result: "cedarpy.AuthzResult") -> Verdict:
    diagnostics = result.diagnostics
    names: Mapping[str, str] = diagnostics.id_annotations_by_reason
    rules = [names.get(reason) or reason for reason in diagnostics.reasons]
    allowed = result.allowed
    return Verdict(
        permits=allowed,
        forbids=not allowed and bool(rules),
        rules=rules,
        errors=[*diagnostics.errors],
    )


def _read_uid(entity: JsonObject) -> tuple[str, str] | None:
    uid = as_object(entity.get("uid"))
    kind, name = uid.get("type"), uid.get("id")
    return (kind, name) if isinstance(kind, str) and isinstance(name, str) else None


def _split(text: str) -> list[tuple[int, int, str]]:
    """Return each policy of a text with line and column, which Cedar does not report."""
    policies: list[tuple[int, int, str]] = []
    start = 0
    for token in _TOKEN.finditer(text):
        if start == token.start() and token["blank"]:
            start = token.end()
        elif token["end"]:
            policies.append(_place(text, start, token.end()))
            start = token.end()
    return [*policies, _place(text, start, len(text))] if start < len(text) else policies


def _place(text: str, start: int, end: int) -> tuple[int, int, str]:
    before = text[:start]
    return before.count("\n") + 1, start - before.rfind("\n"), text[start:end]


def _import_cedarpy() -> Any:
    try:
        import cedarpy
    except ModuleNotFoundError as error:
        raise MissingPackage("A policy in Cedar", "cedarpy", "cedar") from error
    return cedarpy
