"""Objects of Copilot-LD's types: names, tokens, what they are as JSON."""

import re
from typing import Any
from uuid import UUID

from copilot_runtime.base.jsonvalue import as_object
from copilot_runtime.extensions.knowledge.identifiers import Identifier, hash_short
from copilot_runtime.extensions.knowledge.resource_types import (
    RESOURCE_TYPES,
    Naming,
    create_resource,
    describe,
    to_resource,
)
from copilot_runtime.extensions.knowledge.resources import Resource, encode_resource
from copilot_runtime.extensions.knowledge.tokens import count_json_tokens
from tests.conformance.copilot_ld.cases import Case, Verdict

SAME_MESSAGE = {"id": {"name": "fixed"}, "role": "user", "content": "Hello, world!"}
"""What a case means that speaks of the same message as the one before it."""

_PARENT = re.compile(r"parent (\S+)")


def answer(case: Case) -> Any:
    if case.feature.startswith("toType"):
        return project(to_resource(case.input), case.output)
    return project(create(case, naming="random"), case.output)


def answer_seed(case: Case) -> Any:
    """In November 2025, objects without a name were named for their content."""
    first, second = (create(case, naming="content") for _ in range(2))
    return first.id == second.id if isinstance(case.output, bool) else project(first, case.output)


def answer_todo(case: Case) -> Verdict:
    """In August 2025, URNs had short hashes, and descriptions four sections."""
    type, content = case.input["type"], case.input["content"]
    urn = Identifier(type, hash_short(type, content), case.input.get("parent", "")).urn
    head, digest, _ = re.split(r'<first 8 hex of sha256\("(.*)"\)>', case.output["urn"])
    sections = ("Purpose", "Instructions", "Applicability", "Evaluation")
    meta = {name.lower(): "..." for name in sections}
    description = ", ".join(describe(meta).split("\n\n"))
    tokens = count_json_tokens(case.input)
    actual = {"urn": urn, "description": description, "token_count": tokens}
    holds = urn == head + hash_short(digest)
    return Verdict(holds and case.output["description"].startswith(description), actual)


def create(case: Case, naming: Naming) -> Resource:
    """Build the object that a case describes: an object, its id, its content, or in words."""
    given = case.input
    type = next(
        (
            name
            for name in RESOURCE_TYPES
            if re.search(rf"\b{name.partition('.')[2]}\b", case.feature)
        ),
        "common.Message",
    )
    if isinstance(given, str):
        found = _PARENT.search(given)
        if found or "same message" in given:
            return create_resource(type, SAME_MESSAGE, parent=found[1] if found else "")
        return create_resource(type, {"content": given}, naming=naming, digits=8)
    if given and "id" not in given and {*given} <= {"type", "name", "parent", "tokens"}:
        given = {"id": given}
    type = as_object(given.get("id")).get("type") or type
    return create_resource(type, given, naming=naming, digits=8)


def project(resource: Resource, shape: Any) -> Any:
    """Return what a case shows of an object, by what its output has members for."""
    whole = encode_resource(resource)
    if isinstance(shape, str):
        return resource.id.name if "." not in shape else resource.uri
    if not isinstance(shape, dict) or "error" in shape:
        return whole
    parts = {"uri": resource.uri, "json": whole, "nameIsUuid": is_uuid(resource.id.name)}
    if shape.keys() <= parts.keys():
        return {name: parts[name] for name in shape}
    if "id" in shape:
        return whole
    return {name: value for name, value in whole["id"].items() if name in shape}


def is_uuid(name: str) -> bool:
    try:
        return UUID(name).version == 4
    except ValueError:
        return False
