"""Serves a CopilotKit remote endpoint: handles the requests of a Node runtime.

The protocol is that of the Python package `copilotkit`, and of `remoteEndpoints` of
@copilotkit/runtime 1.10. A failed action is a result for the model, because Node drops the reason
of an error response. Events are written as JSON lines in the format of CopilotKit's own runtime,
which has none for reasoning, steps, usage and failed runs.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from copilot_runtime import __version__
from copilot_runtime.agents.v1_state import encode_messages, track_v1_state
from copilot_runtime.api.action import Action
from copilot_runtime.api.agent import Agent
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    AgentState,
    Event,
    Interrupt,
    RunFailed,
    TextMessageContent,
    TextMessageEnd,
    TextMessageStart,
)
from copilot_runtime.api.identity import Caller
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import RUN_FAILED, CopilotError, NotFound
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import (
    JsonObject,
    as_object,
    require_object,
    require_text,
    to_text,
)
from copilot_runtime.extensions.frameworks.remote.server import decode
from copilot_runtime.transports.body import BadRequest
from copilot_runtime.transports.program_runs import RunEnded
from copilot_runtime.transports.request import Request
from copilot_runtime.transports.streaming import run_until_disconnect
from copilot_runtime.transports.transport import Refusal, Services, Transport

_EMPTY_LINE = b"\n"


class RemoteServer(Transport):
    """Answers Node runtimes. AG-UI has an `info` as well, but its clients send a GET."""

    paths = ("info", "actions/execute", "agents/execute", "agents/state")
    for_programs = True

    def __init__(self, services: Services) -> None:
        self._program_runs = services.program_runs
        self._max_messages = services.settings.max_messages
        self._max_items = services.settings.max_items
        self._keep_alive = services.settings.keep_alive
        self._answers: Mapping[str, Callable[[JsonObject, Caller], Awaitable[JsonObject]]] = {
            "info": self._info,
            "actions/execute": self._act,
            "agents/state": self._state,
        }

    def find_scope(self, request: Request) -> str:
        return {"info": "", "agents/state": "threads:read"}.get(request.path, "runs:start")

    async def accepts(self, request: Request) -> bool:
        return bool(request.method) and (request.method == "POST" or request.path != "info")

    def refuse(self, error: Exception) -> Refusal:
        match error:
            case BadRequest():
                return Refusal(error.status, {"error": error.message}, error.headers)
            case CopilotError():
                return Refusal(_status(error), {"error": error.public})
            case _:
                return Refusal(500, {"error": RUN_FAILED.message})

    async def __call__(self, request: Request) -> None:
        if request.method != "POST":
            raise BadRequest("Method not allowed", 405, allow="POST")
        body = await _read_object(request)
        request.caller = decode.get_caller(body, request.caller)
        work = self._run if request.path == "agents/execute" else self._answer
        await run_until_disconnect(work(body, request), request.receive, None)

    async def _answer(self, body: JsonObject, request: Request) -> None:
        answer = self._answers[request.path]
        await request.respond_json(200, await answer(body, request.caller))

    async def _info(self, body: JsonObject, caller: Caller) -> JsonObject:
        del body
        return info(
            await self._program_runs.actions(caller), await self._program_runs.agents(caller)
        )

    async def _act(self, body: JsonObject, caller: Caller) -> JsonObject:
        name, arguments = decode.action_call(body)
        return {"result": await self._program_runs.call(caller, name, arguments, "actions/execute")}

    async def _state(self, body: JsonObject, caller: Caller) -> JsonObject:
        """Return the state and messages of an agent's thread; empty if it stores none."""
        name, thread = require_text(body, "name", "body"), require_text(body, "threadId", "body")
        found = await self._program_runs.conversations.load_state(name, thread, caller)
        state, messages = found or ({}, [])
        head = {"threadId": thread, "threadExists": found is not None}
        return {**head, "state": state, "messages": messages}

    async def _run(self, body: JsonObject, request: Request) -> None:
        """Write the events of a run in the format of v1, and nothing after a failure.

        That format has no event for failures; Node detects a response without an end.
        """
        caller = request.caller
        fields = decode.run_fields(body, self._max_messages, self._max_items)
        ours = {action.name for action in await self._program_runs.actions(caller)}
        theirs = fields.pop("actions")
        others = [action for action in theirs if action.name not in ours]
        run = self._program_runs.build_run(caller, **fields, actions=others)
        lines = Lines(run, quiet=ours.intersection(action.name for action in theirs))
        async with aclosing(self._program_runs.events(run)) as log:
            await anext(log)  # what forbids the run to begin is answered by a status
            at_work = track_v1_state(log, replace(run, follow_up="client"))
            answer = request.stream(
                "application/json", keep_alive=self._keep_alive, comment=_EMPTY_LINE
            )
            async with answer as stream, aclosing(at_work) as events:
                async for event in events:
                    if text := lines.feed(event):
                        await stream.write(text)
                if not lines.failed:
                    await stream.write(b"", last=True)


async def _read_object(request: Request) -> JsonObject:
    try:
        return require_object(await request.json(), "body")
    except ValueError:
        raise BadRequest("The request body is no JSON.") from None


def _status(error: CopilotError) -> int:
    """Return the status for an error.

    Node retries up to three times after a status for a busy or unavailable server. Such a status is
    used only for runs that did not start: an action must not run twice.
    """
    if isinstance(error, RunEnded):
        return 404 if error.code == NotFound.code else 500
    return error.status_code


_KIND = "crewai"
"""The agent type whose events a Node runtime passes on unchanged."""

_KINDS = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean"}
_DEEPEST = 16


def info(actions: Sequence[Action], agents: Mapping[str, Agent]) -> JsonObject:
    """Return the body of `/info`."""
    return {
        "sdkVersion": __version__,
        "actions": [
            {
                "name": action.name,
                "description": action.description,
                "parameters": parameters_of(action.parameters),
            }
            for action in actions
        ],
        "agents": [
            {"name": name, "description": agent.description or "", "type": _KIND}
            for name, agent in agents.items()
        ],
    }


def parameters_of(schema: Mapping[str, Any]) -> list[JsonObject]:
    """Translate an object's JSON schema into CopilotKit's own notation, which is less expressive.

    Types without an equivalent become strings. Arguments are validated against the original schema.
    """
    return _parameters(schema, schema.get("$defs"), 0)


def _parameters(schema: Mapping[str, Any], definitions: Any, depth: int) -> list[JsonObject]:
    properties, required = schema.get("properties"), schema.get("required")
    return [
        {
            "name": name,
            "required": isinstance(required, list) and name in required,
            **_describe(item, definitions, depth + 1),
        }
        for name, item in (properties.items() if isinstance(properties, dict) else ())
    ]


def _describe(item: Any, definitions: Any, depth: int) -> JsonObject:
    """Return type and description of one value."""
    found = _resolve(item, definitions)
    about = next(
        (d for it in (item, found) if isinstance(d := as_object(it).get("description"), str)), None
    )
    described = {} if about is None else {"description": about}
    if found.get("type") != "array":
        return {**_kind(found, definitions, depth), **described}
    inner = _kind(_resolve(found.get("items"), definitions), definitions, depth)
    return {**inner, "type": f"{inner['type']}[]", **described}


def _kind(schema: JsonObject, definitions: Any, depth: int) -> JsonObject:
    kind = schema.get("type")
    if kind == "object" or "properties" in schema:
        inner = _parameters(schema, definitions, depth) if depth < _DEEPEST else []
        return {"type": "object", **({"attributes": inner} if inner else {})}
    choices = schema.get("enum")
    if isinstance(choices, list) and all(isinstance(choice, str) for choice in choices):
        return {"type": "string", "enum": choices}
    return {"type": _KINDS.get(kind, "string") if isinstance(kind, str) else "string"}


def _resolve(item: Any, definitions: Any) -> JsonObject:
    """Resolve a schema's `$ref`, or return its first alternative that is not null."""
    for _ in range(_DEEPEST):
        if not isinstance(item, dict):
            return {}
        if isinstance(reference := item.get("$ref"), str):
            item = as_object(definitions).get(reference.rpartition("/")[2])
        elif isinstance(choices := item.get("anyOf") or item.get("oneOf"), list):
            item = next((one for one in choices if as_object(one).get("type") != "null"), {})
        elif isinstance(kinds := item.get("type"), list):
            item = {**item, "type": next((kind for kind in kinds if kind != "null"), None)}
        else:
            return item
    return {}


class Lines:
    """Encodes the events of one run as JSON lines, without calls of the actions in `quiet`.

    These run on this server although the caller has them, too: Node would run each a second time.
    """

    def __init__(self, run: RunInput, *, quiet: Collection[str] = ()) -> None:
        self.failed = False
        self._run = run
        self._quiet = quiet
        self._silent: set[str] = set()
        """Ids of the omitted messages and calls."""

    def feed(self, event: Event) -> bytes:
        """Return the line of an event, or empty bytes if the format has no equivalent."""
        line = self._line(event)
        return b"" if line is None else dumps(line) + b"\n"

    def _line(self, event: Event) -> JsonObject | None:
        match event:
            case TextMessageStart():
                return self._text_start(event)
            case TextMessageContent(message_id=id, content=content) if id not in self._silent:
                return {"type": "TextMessageContent", "messageId": id, "content": content}
            case TextMessageEnd(message_id=id) if id not in self._silent:
                return {"type": "TextMessageEnd", "messageId": id}
            case ActionExecutionStart():
                return self._call_start(event)
            case ActionExecutionArgs(call_id=id, delta=delta) if id not in self._silent:
                return {"type": "ActionExecutionArgs", "actionExecutionId": id, "args": delta}
            case ActionExecutionEnd(call_id=id) if id not in self._silent:
                return {"type": "ActionExecutionEnd", "actionExecutionId": id}
            case ActionExecutionResult(call_id=id) if id not in self._silent:
                result = {"actionName": event.name, "result": event.result}
                return {"type": "ActionExecutionResult", "actionExecutionId": id, **result}
            case AgentState():
                return self._state(event)
            case Interrupt():
                return _interrupt(event)
            case RunFailed(error=error):
                self.failed = True
                details = {"error": error.message, "message": error.message, "code": error.code}
                return {"type": "RunError", **details}
            case _:
                return None

    def _text_start(self, event: TextMessageStart) -> JsonObject | None:
        if event.role != "assistant":  # whatever begins here is the assistant's for Node
            self._silent.add(event.message_id)
            return None
        self._silent.discard(event.message_id)
        item = {"type": "TextMessageStart", "messageId": event.message_id}
        return {**item, **_parent(event.parent_id)}

    def _call_start(self, event: ActionExecutionStart) -> JsonObject | None:
        if event.name in self._quiet:
            self._silent.add(event.call_id)
            return None
        item = {"actionExecutionId": event.call_id, "actionName": event.name}
        return {"type": "ActionExecutionStart", **item, **_parent(event.parent_id)}

    def _state(self, event: AgentState) -> JsonObject:
        return {
            "type": "AgentStateMessage",
            "threadId": self._run.thread_id,
            "agentName": event.agent,
            "nodeName": event.node,
            "runId": event.run_id or self._run.run_id,
            "active": event.active,
            "role": "assistant",
            "state": dumps(event.state).decode(),
            "running": event.running,
        }


def _interrupt(event: Interrupt) -> JsonObject:
    value = to_text(event.value)
    messages = encode_messages(event.messages)
    if not messages:
        return {"type": "MetaEvent", "name": "LangGraphInterruptEvent", "value": value}
    data = {"value": value, "messages": messages}
    return {"type": "MetaEvent", "name": "CopilotKitLangGraphInterruptEvent", "data": data}


def _parent(id: str | None) -> JsonObject:
    return {} if id is None else {"parentMessageId": id}
