"""Memories in the format of the client's `useMemories`, of CopilotKit 1.74."""

from collections.abc import Mapping
from typing import Any, get_args

from copilot_runtime.api.user_memories import Kind, Scope, UserMemories, UserMemory
from copilot_runtime.base.errors import Misuse
from copilot_runtime.base.jsonvalue import JsonObject, as_object
from copilot_runtime.transports.agui.routes import Name, Operation

OPERATIONS: frozenset[Name] = frozenset(
    {"list memories", "recall memories", "add memory", "replace memory", "delete memory"}
)


async def answer(
    memories: UserMemories | None, operation: Operation, user: str | None
) -> tuple[int, Any]:
    """Execute an operation, and return the status and the body. Raises `CopilotError`.

    With the status 422, the client takes memories for not offered, and no page breaks.
    """
    if memories is None:
        return 422, {"error": "Memories are part of knowledge, and this server has none."}
    if not user:
        return 422, {"error": "Memories belong to users: sign in."}
    body = as_object(operation.body)
    match operation.name:
        case "list memories":
            return 200, {"memories": [*map(_encode, await memories.list(user))]}
        case "recall memories":
            query, limit = _read_text(body, "query"), body.get("limit", 10)
            if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
                raise Misuse("limit must be a number of at least 1.")
            scope: Any = _read_word(body, "scope", Scope, None)
            found = await memories.recall(user, query, scope=scope, limit=limit)
            return 200, {"memories": [*map(_encode, found)]}
        case "add memory":
            return 201, _encode(await memories.add(user, _decode(body)))
        case "replace memory":
            new = await memories.replace(user, operation.memory, _decode(body))
            return 200, {**_encode(new), "retiredId": operation.memory}
        case _:
            await memories.delete(user, operation.memory)
            return 204, None


def _decode(body: JsonObject) -> UserMemory:
    threads = body.get("sourceThreadIds") or []
    if not isinstance(threads, list) or not all(isinstance(it, str) for it in threads):
        raise Misuse("sourceThreadIds must be a list of strings.")
    kind: Any = _read_word(body, "kind", Kind, "topical")
    scope: Any = _read_word(body, "scope", Scope, "user")
    threads = [str(it) for it in threads]
    return UserMemory(content=_read_text(body, "content"), kind=kind, scope=scope, threads=threads)


def _encode(memory: UserMemory) -> dict[str, Any]:
    return {
        "id": memory.id,
        "kind": memory.kind,
        "scope": memory.scope,
        "content": memory.content,
        "sourceThreadIds": [*memory.threads],
        "invalidatedAt": None,
        **({} if memory.score is None else {"score": memory.score}),
    }


def _read_text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value.strip():
        raise Misuse(f"{name} must be a text that is not empty.")
    return value.strip()


def _read_word(body: Mapping[str, Any], name: str, words: Any, default: str | None) -> Any:
    value = body.get(name)
    if value is not None and value not in get_args(words):
        raise Misuse(f"{name} must be one of: {', '.join(get_args(words))}.")
    return default if value is None else value
