"""GraphQL fields for operators: list tools, and call one as a model would.

Tools act in the name of this server, so other users can neither list nor call them directly: agents
call them in a chat. A runtime without tools, or without operators, has none of these fields.
"""

from collections.abc import Sequence

import strawberry

from copilot_runtime.api.action import Action, ActionContext
from copilot_runtime.api.messages import new_id
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.extensions.tools import catalog
from copilot_runtime.extensions.tracing.http.access import TraceAccess
from copilot_runtime.transports.graphql.context import Context
from copilot_runtime.transports.graphql.schema import CopilotInfo
from copilot_runtime.transports.graphql.types import JSON, JSONObject

_MOST_FIELDS = 5
"""Maximum number of tool fields in one request, because each may wait for other servers."""

_THREAD = "graphql"
"""The thread of calls outside of conversations."""


class ToolsForbidden(CopilotError):
    """Tools are restricted to operators."""

    code = "FORBIDDEN"
    status_code = 403
    visibility = "banner"


@strawberry.type(name="Tool", description="A tool that an operator wrote, as a model gets it")
class ToolEntry:
    name: str
    description: str = strawberry.field(description="What a model reads: all sections")
    purpose: str
    applicability: str = strawberry.field(description="When to use it")
    instructions: str = strawberry.field(description="How to use it")
    evaluation: str = strawberry.field(description="What it returns")
    parameters: JSONObject = strawberry.field(description="The JSON schema of its arguments")
    endpoint: str = strawberry.field(
        description="What it calls: function, http, openapi, mcp, graphql or grpc"
    )
    idempotent: bool = strawberry.field(description="Whether it may be called twice")
    error: str | None = strawberry.field(description="Why it cannot be called now")


@strawberry.type(description="What a tool gave, as a model reads it")
class ToolResult:
    content: str = strawberry.field(description="The result, or the error as JSON")
    error: str | None


@strawberry.type
class ToolQuery:
    @strawberry.field(description="The tools that an operator wrote. Their endpoints are asked")
    async def tools(self, info: CopilotInfo) -> list[ToolEntry]:
        context = info.context
        run = RunInput(
            thread_id=_THREAD,
            run_id=new_id(),
            messages=(),
            properties=context.caller.properties,
            headers=context.caller.headers,
            user=context.caller.user,
        )
        return [
            entry
            for each in _require(context)
            for described in await each.describe_all(run)
            for entry in _build_entries(described)
        ]


@strawberry.type
class ToolMutation:
    @strawberry.mutation(
        description="Call a tool as a model would, with its arguments as an object, or as its "
        "text. What goes wrong in the call is in the result"
    )
    async def call_tool(
        self, info: CopilotInfo, name: str, arguments: JSON | None = None
    ) -> ToolResult:
        context = info.context
        catalogs = _require(context)
        call = ActionContext(
            thread_id=_THREAD,
            run_id=new_id(),
            call_id=new_id(),
            properties=context.caller.properties,
            headers=context.caller.headers,
            user=context.caller.user,
        )
        owner = next((each for each in catalogs if each.has_tool(name)), catalogs[0])
        result = await owner.call(name, _write_arguments(arguments), call)
        return ToolResult(content=result.content, error=result.error)


ROOTS = {"Query": ToolQuery, "Mutation": ToolMutation}


def _require(context: Context) -> Sequence[catalog.ToolCatalog]:
    """Return the catalog, and count a further field of the request.

    Raises `ToolsForbidden` unless the caller is an operator, and `LimitExceeded` for too many
    fields.
    """
    request, traces = context.request, context.services.parts.find(TraceAccess)
    assert traces is not None
    if not traces.allows(request.scope, request.headers, request.caller):
        raise ToolsForbidden(
            "Tools are for operators of this server.",
            hint="The setting telemetry.operators names them; without authentication, users of "
            "this machine are operators.",
        )
    context.count_field("tools", _MOST_FIELDS)
    return [context.services.parts.get(catalog.ToolCatalog)]


def _write_arguments(arguments: object) -> str:
    if isinstance(arguments, str):
        return arguments
    return "{}" if arguments is None else dumps(arguments).decode()


def _build_entries(described: catalog.ToolDescription) -> Sequence[ToolEntry]:
    """Return a tool's entries.

    There is one per operation, or one with the error if it is unreachable.
    """
    actions = described.actions or [Action(name=described.name)]
    return [_build_entry(described, action) for action in actions]


def _build_entry(described: catalog.ToolDescription, action: Action) -> ToolEntry:
    definition = described.definition
    return ToolEntry(
        name=action.name,
        description=action.description or (definition.sections if definition else ""),
        purpose=definition.purpose if definition else "",
        applicability=definition.applicability if definition else "",
        instructions=definition.instructions if definition else "",
        evaluation=definition.evaluation if definition else "",
        parameters=JSONObject({**action.parameters}),
        endpoint=definition.kind if definition else "",
        idempotent=action.is_idempotent,
        error=described.error,
    )
