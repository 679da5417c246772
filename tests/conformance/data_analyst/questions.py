"""What a person asks and what they are answered: guards, history, and what a question is."""

from collections.abc import Awaitable, Callable
from typing import Any, get_args

from copilot_runtime.extensions.analyst.guards import (
    OutputGuard,
    RequestBlocked,
    guard_output,
    guard_question,
)
from copilot_runtime.extensions.analyst.prompt.prepare import (
    HISTORY_LIMIT,
    Classification,
    classify,
    prepare_request,
)
from tests.conformance.data_analyst.cases import Given
from tests.conformance.data_analyst.facts import Facts
from tests.conformance.data_analyst.world import World


def answer_input(given: Given, world: World) -> Facts:
    """Guard a question; its stream and its status are those of a request over HTTP."""
    message = given["message"]
    facts: dict[str, Any] = {"blocked": False, "response_kind": None}
    try:
        guarded = guard_question(message)
    except RequestBlocked as blocked:
        facts |= {
            "blocked": True,
            "response_kind": blocked.kind,
            "response": blocked.response,
        }
    else:
        facts |= {
            "message": guarded.message,
            "message_length": len(guarded.message),
            "notice": guarded.notice,
            "truncated": bool(guarded.notice),
        }
    if "history" in given:
        prepared = prepare_request("?", given["history"], is_safe=is_safe)
        facts["history_contents"] = "\n".join(
            entry.content for entry in prepared.conversation_history
        )
    return facts | {name: _ask_lazily(message, world, name) for name in ("sse", "http_status")}


def _ask_lazily(message: str, world: World, name: str) -> Callable[[], Awaitable[Any]]:
    """Return what asks over HTTP, if a case wants to know what comes."""

    async def find() -> Any:
        from tests.conformance.data_analyst.server import open_server
        from tests.conformance.data_analyst.streams import ask

        return (await ask(await open_server(world), message))[name]

    return find


def answer_output(given: Given, world: World) -> Facts:
    """Guard an answer, whole or in the pieces in which it comes."""
    if "chunks" in given:
        text = "".join(given["chunks"])
        guard = OutputGuard()
        result = "".join([*map(guard.feed, given["chunks"]), guard.finish()])
    else:
        text = given["text"]
        result = guard_output(text)
    return {"text": result, "output": result, "unchanged": result == text}


def answer_classification(given: Given, world: World) -> Facts:
    """Say what kind of message it is, and whether that blocks anything."""
    judgement = classify(given["message"], has_context=bool(given.get("history")))
    return {
        "classification": judgement.classification,
        "value": judgement.classification,
        "confidence": judgement.confidence,
        "blocked": False,
        "values": list(get_args(Classification)),
    }


def answer_history(given: Given, world: World) -> Facts:
    """Return what of a conversation goes to the model."""
    prepared = prepare_request(
        given["message"],
        given["history"],
        history_limit=given.get("history_limit", HISTORY_LIMIT),
        history_unit=given.get("history_unit", "entries"),
        is_safe=is_safe,
    )
    contents = [entry.content for entry in prepared.messages]
    return {
        "sent_contents": contents,
        "sent": [dict(entry._asdict()) for entry in prepared.messages],
        "sent_roles": [entry.role for entry in prepared.messages],
        "sent_count": len(contents),
        "text": "\n".join(contents),
    }


def is_safe(message: str) -> bool:
    """Return whether the input guard lets an earlier message pass."""
    try:
        guard_question(message)
    except RequestBlocked:
        return False
    return True
