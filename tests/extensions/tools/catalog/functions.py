"""Functions that the tools of the tests call."""

from typing import Any

from copilot_runtime import action
from copilot_runtime.api import ActionContext
from copilot_runtime.base.errors import NetworkError

CALLS: list[dict[str, Any]] = []
"""The arguments of the calls that there were."""


def greet(name: str, greeting: str = "Hello", punctuation: str = "!") -> str:
    """Greet somebody.

    Args:
        name: Who is greeted.
        greeting: The first word.
        punctuation: The last character.
    """
    CALLS.append({"name": name, "greeting": greeting})
    return f"{greeting}, {name}{punctuation}"


def write_much(size: int) -> str:
    return "x" * size


def find_documents() -> dict[str, Any]:
    return {"identifiers": [{"type": "common.Document", "name": "d1"}, "common.Document.d2"]}


def find_nothing() -> dict[str, Any]:
    return {"identifiers": []}


def give(value: dict[str, Any]) -> Any:
    return value


def fail(secret: str) -> None:
    CALLS.append({})
    raise NetworkError(f"Nobody answers to {secret}.")


@action(is_idempotent=True)
def fail_once() -> str:
    CALLS.append({})
    if len(CALLS) < 2:
        error = NetworkError("Come again.")
        error.__dict__["retry_after"] = 0.0
        raise error
    return f"call {len(CALLS)}"


def tell_caller(context: ActionContext, user: str) -> str:
    del context
    return user
