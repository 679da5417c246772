"""Identifiers, hashes and counts of tokens."""

from typing import Any

from copilot_runtime.base.errors import Misuse
from copilot_runtime.base.jsonvalue import get_text
from copilot_runtime.extensions.knowledge.identifiers import (
    Identifier,
    hash_short,
    parse_identifier,
)
from copilot_runtime.extensions.knowledge.tokens import count_tokens
from tests.conformance.copilot_ld.cases import Case


def answer(case: Case) -> Any:
    """An object becomes a URI, and a URI its parts."""
    if isinstance(case.input, str):
        return describe(parse_identifier(case.input))
    return str(read_identifier(case.input))


def answer_tokens(case: Case) -> int:
    return count_tokens(case.input) if isinstance(case.input, str) else 0


def answer_hash(case: Case) -> str:
    values = case.input if isinstance(case.input, list) else [case.input]
    return hash_short(*values)


def read_identifier(value: Any) -> Identifier:
    if not isinstance(value, dict):
        raise Misuse("not an identifier")
    return Identifier(get_text(value, "type"), get_text(value, "name"), get_text(value, "parent"))


def describe(identifier: Identifier) -> dict[str, str]:
    """Return the parts of an identifier, as the cases have them."""
    return {"type": identifier.type, "name": identifier.name, "parent": identifier.parent}
