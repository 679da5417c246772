"""The subscription to a run: updates with the changes since the previous one."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import strawberry

from copilot_runtime.api.bus import START, Cursor
from copilot_runtime.api.events import Event, Interrupt
from copilot_runtime.base.errors import Misuse
from copilot_runtime.transports.graphql.context import Context
from copilot_runtime.transports.graphql.decode import run_input
from copilot_runtime.transports.graphql.inputs import GenerateCopilotResponseInput
from copilot_runtime.transports.graphql.outputs import (
    BaseMessageOutput,
    BaseMetaEvent,
    MessageDelta,
    build_message,
    build_meta_event,
    ended_id,
    read_delta,
)
from copilot_runtime.transports.graphql.statuses import ResponseStatus, response_status
from copilot_runtime.transports.trace_ids import find_trace_id


@strawberry.type(
    description="What a run brought since the update before. `cursor` is the place to go on from: "
    "whoever reconnects sends it as `after`."
)
class CopilotResponseUpdate:
    cursor: str
    thread_id: str
    run_id: str
    status: ResponseStatus = strawberry.field(description="Pending until the run has ended.")
    started: list[BaseMessageOutput] = strawberry.field(
        description="Messages that began. Ask for their id, type and head; content comes as deltas."
    )
    deltas: list[MessageDelta]
    ended: list[str] = strawberry.field(description="Ids of the messages that are complete.")
    meta_events: list[BaseMetaEvent]


async def stream_updates(
    context: Context,
    data: GenerateCopilotResponseInput | None,
    properties: dict[str, Any] | None,
    run_id: str | None,
    after: Cursor | None,
) -> AsyncGenerator[CopilotResponseUpdate, None]:
    """Start or follow a run. Raises `Misuse` when both or neither are asked for.

    The run does not end with its reader, which may come back; its log lives on for a while
    after its end (setting `log_ttl`).
    """
    if (data is None) == (run_id is None):
        raise Misuse("Give either `data` to start a run, or `runId` to follow one.")
    if data is not None:
        run = run_input(context, data, properties, detached=True)
        run_id = run.run_id
        started = await context.runs.start(run)
        context.trace_id = find_trace_id(started, context.caller.headers, properties)
    assert run_id is not None
    thread_id, log = await context.runs.find_log(run_id, context.caller.user, after or START)
    async with aclosing(log) as batches:
        async for cursor, events in batches:
            yield _build_update(cursor, thread_id, run_id, events)


def _build_update(
    cursor: Cursor, thread_id: str, run_id: str, events: Sequence[Event]
) -> CopilotResponseUpdate:
    return CopilotResponseUpdate(
        cursor=cursor,
        thread_id=thread_id,
        run_id=run_id,
        status=response_status(events[-1]),
        started=[message for event in events if (message := build_message(event)) is not None],
        deltas=[delta for event in events if (delta := read_delta(event)) is not None],
        ended=[key for event in events if (key := ended_id(event)) is not None],
        meta_events=[build_meta_event(event) for event in events if isinstance(event, Interrupt)],
    )
