"""The root types of the v1 schema, and our own subscription to a run."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from functools import cache
from importlib import import_module
from typing import Any, TypeAlias

import strawberry
from graphql import GraphQLError, GraphQLSchema
from strawberry import UNSET
from strawberry.extensions import SchemaExtension
from strawberry.tools import merge_types
from strawberry.types import ExecutionContext, Info

from copilot_runtime.agents.registry import AgentDirectory
from copilot_runtime.api.bus import START, Cursor
from copilot_runtime.api.events import Event, Interrupt
from copilot_runtime.base.errors import Misuse
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.extensions import SCHEMAS
from copilot_runtime.runtime.run import Run
from copilot_runtime.transports.graphql import outputs, types
from copilot_runtime.transports.graphql.context import Context
from copilot_runtime.transports.graphql.decode import run_input
from copilot_runtime.transports.graphql.errors import hide_details
from copilot_runtime.transports.graphql.inputs import (
    GenerateCopilotResponseInput,
    LoadAgentStateInput,
)
from copilot_runtime.transports.graphql.outputs import (
    BaseMessageOutput,
    BaseMetaEvent,
    CopilotResponse,
    MessageDelta,
    Place,
    build_message,
    build_meta_event,
    ended_id,
    read_delta,
)
from copilot_runtime.transports.graphql.types import (
    CONFIG,
    JSONObject,
    ResponseStatus,
    response_status,
)
from copilot_runtime.transports.trace_ids import find_trace_id


@strawberry.type(
    description="The events of a run since the previous update. To resume after a lost connection, "
    "send its `cursor` as `after`."
)
class CopilotResponseUpdate:
    cursor: str
    thread_id: str
    run_id: str
    status: ResponseStatus = strawberry.field(description="Pending until the run has ended.")
    started: list[BaseMessageOutput] = strawberry.field(
        description="Started messages: select their id, type and head; content comes as deltas."
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
    """Start or follow a run. Raises `Misuse` unless exactly one of the two is requested.

    The run continues if its reader disconnects; its log is kept for a while after its end (setting
    `log_ttl`), so that the reader can resume.
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


CopilotInfo: TypeAlias = Info[Context, None]


@strawberry.type
class Agent:
    id: str
    name: str
    description: str


@strawberry.type
class AgentsResponse:
    agents: list[Agent]


@strawberry.type
class LoadAgentStateResponse:
    thread_id: str
    thread_exists: bool
    state: str
    messages: str


@strawberry.type
class Query:
    @strawberry.field
    async def hello(self) -> str:
        return "Hello World"

    @strawberry.field
    async def available_agents(self, info: CopilotInfo) -> AgentsResponse:
        context = info.context
        agents = await context.runs.agents_for(context.caller)
        if isinstance(agents, AgentDirectory):
            agents.check()
        return AgentsResponse(
            agents=[
                Agent(id=name, name=name, description=agent.description or "")
                for name, agent in agents.items()
            ]
        )

    @strawberry.field
    async def load_agent_state(
        self, info: CopilotInfo, data: LoadAgentStateInput
    ) -> LoadAgentStateResponse:
        """Return the result of `Agent.load_state`; without that method, every thread is new.

        If callers are authenticated, the agent gets the thread id that `ThreadIds` derives.
        """
        context = info.context
        found = await context.runs.load_state(data.agent_name, data.thread_id, context.caller)
        state, messages = found or ({}, [])
        return LoadAgentStateResponse(
            thread_id=data.thread_id,
            thread_exists=found is not None,
            state=dumps(state).decode(),
            messages=dumps(messages).decode(),
        )


@strawberry.type
class Mutation:
    @strawberry.mutation
    async def generate_copilot_response(
        self,
        info: CopilotInfo,
        data: GenerateCopilotResponseInput,
        properties: JSONObject | None = UNSET,
    ) -> CopilotResponse:
        context = info.context
        run = await start_run(context, data, properties or None)
        context.trace_id = find_trace_id(run, context.caller.headers, properties or None)
        return await build_response(run).load_extensions()

    @strawberry.mutation(
        description="Stop a run that a subscription started. True if it was still active."
    )
    async def stop_copilot_response(self, info: CopilotInfo, run_id: str) -> bool:
        return await info.context.runs.stop_log(run_id, info.context.caller.user)


@strawberry.type
class Subscription:
    @strawberry.subscription(
        description="Start a run, or follow one from a cursor, and receive its response as it "
        "grows. Give `data` to start; give `runId` and `after` to resume after a lost connection."
    )
    async def generate_copilot_response(
        self,
        info: CopilotInfo,
        data: GenerateCopilotResponseInput | None = UNSET,
        properties: JSONObject | None = UNSET,
        run_id: str | None = UNSET,
        after: str | None = UNSET,
    ) -> AsyncGenerator[CopilotResponseUpdate, None]:
        arguments = (data or None, properties or None, run_id or None, after or None)
        try:
            async with aclosing(stream_updates(info.context, *arguments)) as found:
                async for update in found:
                    yield update
        except Exception as error:  # even of hooks and agents: clients get no details
            raise hide_details(error) from None


async def start_run(
    context: Context, data: GenerateCopilotResponseInput, properties: dict[str, Any] | None
) -> Run:
    """Start a run that ends with its request. Raises the errors that prevent its start."""
    run = context.runs.create(run_input(context, data, properties))
    context.started.append(run)
    await context.runs.launch(run)
    return run


def build_response(run: Run) -> CopilotResponse:
    """Return the response object of a run."""
    return CopilotResponse(thread_id=run.thread_id, place=Place(run))


class _Schema(strawberry.Schema):
    def process_errors(
        self,
        errors: list[GraphQLError],
        execution_context: ExecutionContext | None = None,
    ) -> None:
        """Log nothing: errors of clients are expected, and our own are logged where they occur."""


def make_schema(
    modules: Sequence[str] = (), extensions: Sequence[type[SchemaExtension]] = ()
) -> strawberry.Schema:
    """Return the schema of CopilotKit and our subscription, with the `ROOTS` of these modules."""
    roots: Mapping[str, list[type]] = {
        "Query": [Query],
        "Mutation": [Mutation],
        "Subscription": [Subscription],
    }
    for module in modules:
        for root, fields in import_module(module).ROOTS.items():
            roots[root].append(fields)
    query, mutation, subscription = (
        types[0] if len(types) == 1 else merge_types(root, tuple(types))
        for root, types in roots.items()
    )
    return _Schema(
        query=query,
        mutation=mutation,
        subscription=subscription,
        types=[
            *outputs.TYPES,
            types.PendingResponseStatus,
            types.SuccessResponseStatus,
            types.FailedResponseStatus,
        ],
        extensions=extensions,
        config=CONFIG,
    )


@cache
def core_schema(modules: tuple[str, ...] = ()) -> GraphQLSchema:
    """Return graphql-core's view of the schema, which the HTTP endpoint executes itself."""
    # Strawberry has no public name for it; its own HTTP views use the same attribute
    return make_schema(modules)._schema  # pyright: ignore[reportPrivateUsage]


def sdl(**parts: bool) -> str:
    """Return the SDL of the schema with the fields of some extensions, as in `schema.graphql`."""
    modules = [module for name, module in SCHEMAS.items() if parts.get(name)]
    return make_schema(modules).as_str() + "\n"
