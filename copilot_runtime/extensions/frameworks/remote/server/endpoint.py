"""A CopilotKit remote endpoint: the requests of a Node runtime, and their answers.

The protocol is that of the Python package `copilotkit`, and of `remoteEndpoints` of
@copilotkit/runtime 1.10. An action that fails is a result, which the model reads: Node would keep
the reason of any other answer to itself.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace

from copilot_runtime.agents.v1_state import track_v1_state
from copilot_runtime.api.caller import Caller
from copilot_runtime.base.errors import RUN_FAILED, CopilotError, NotFound
from copilot_runtime.base.jsonvalue import JsonObject, require_object, require_text
from copilot_runtime.extensions.frameworks.remote.server import decode
from copilot_runtime.extensions.frameworks.remote.server.catalog import info
from copilot_runtime.extensions.frameworks.remote.server.encode import Lines
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
        """Return what an agent remembers; nothing of one that remembers nothing."""
        name, thread = require_text(body, "name", "body"), require_text(body, "threadId", "body")
        found = await self._program_runs.conversations.load_state(name, thread, caller)
        state, messages = found or ({}, [])
        head = {"threadId": thread, "threadExists": found is not None}
        return {**head, "state": state, "messages": messages}

    async def _run(self, body: JsonObject, request: Request) -> None:
        """Write the run of an agent in the form of v1, and nothing after a failure.

        Node has no event for that; it sees an answer without an end.
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

    Node asks again, up to three times, when it reads of a server that is busy or down. That is
    for runs which did not begin: an action must not be run twice.
    """
    if isinstance(error, RunEnded):
        return 404 if error.code == NotFound.code else 500
    return 404 if isinstance(error, NotFound) else error.status_code
