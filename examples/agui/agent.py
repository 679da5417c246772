"""A very small agent that speaks AG-UI, as pydantic-ai, LangGraph and others do, by hand.

    uvicorn --app-dir examples/agui agent:app --port 8001

A run is one POST. Its answer is a stream of events: https://docs.ag-ui.com/concepts/events.
"""

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route


async def run(request: Request) -> StreamingResponse:
    asked = await request.json()
    frames = (f"data: {json.dumps(event)}\n\n" for event in answer(asked))
    return StreamingResponse(frames, media_type="text/event-stream")


def answer(asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Count how often it was asked in this conversation: in the state that the page shares."""
    ids = {"threadId": asked["threadId"], "runId": asked["runId"]}
    message = {"messageId": str(uuid4())}
    count = (asked.get("state") or {}).get("questions", 0) + 1
    heard = asked["messages"][-1]["content"] if asked["messages"] else "nothing"

    yield {"type": "RUN_STARTED", **ids}
    yield {"type": "STATE_SNAPSHOT", "snapshot": {"questions": count}}
    yield {"type": "TEXT_MESSAGE_START", **message, "role": "assistant"}
    for word in (f"Question {count}. ", "You said: ", str(heard)):
        yield {"type": "TEXT_MESSAGE_CONTENT", **message, "delta": word}
    yield {"type": "TEXT_MESSAGE_END", **message}
    yield {"type": "RUN_FINISHED", **ids}


app = Starlette(routes=[Route("/", run, methods=["POST"])])
