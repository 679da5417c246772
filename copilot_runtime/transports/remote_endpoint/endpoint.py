"""A CopilotKit remote endpoint: what a Node runtime asks of one, and what it gets.

The protocol is that of the Python package `copilotkit`, and of `remoteEndpoints` of
@copilotkit/runtime 1.10. An action that fails is a result, which the model reads: Node would keep
the reason of any other answer to itself.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace

from starlette.types import Receive, Send

from copilot_runtime.agents.v1_state import track_v1_state
from copilot_runtime.errors import RUN_FAILED, CopilotError, NotFound
from copilot_runtime.interfaces import Caller, private_thread_id
from copilot_runtime.jsontext import dumps, loads
from copilot_runtime.jsonvalue import JsonObject, require_object, require_text
from copilot_runtime.security.cors import RawHeaders
from copilot_runtime.transports.body import BadRequest, ClientGone, read_body
from copilot_runtime.transports.program_runs import ProgramRuns, RunEnded
from copilot_runtime.transports.remote_endpoint import decode
from copilot_runtime.transports.remote_endpoint.catalog import info
from copilot_runtime.transports.remote_endpoint.encode import Lines
from copilot_runtime.transports.streaming import (
    UNBUFFERED,
    Stream,
    WriteTimeout,
    run_until_disconnect,
)

logger = logging.getLogger(__name__)

ROUTES = frozenset({"info", "actions/execute", "agents/execute", "agents/state"})
"""The paths below our URL. AG-UI has an `info` as well, but asks for it by GET."""

_EMPTY_LINE = b"\n"


class RemoteServer:
    """Answers requests below the URL. Sizes are in bytes, times in seconds."""

    def __init__(
        self,
        program_runs: ProgramRuns,
        *,
        max_body_bytes: int,
        max_messages: int,
        write_timeout: float,
        keep_alive: float,
    ) -> None:
        self._program_runs = program_runs
        self._max_body_bytes = max_body_bytes
        self._max_messages = max_messages
        self._write_timeout = write_timeout
        self._keep_alive = keep_alive
        self._answers: Mapping[str, Callable[[JsonObject, Caller], Awaitable[JsonObject]]] = {
            "info": self._info,
            "actions/execute": self._act,
            "agents/state": self._state,
        }

    async def __call__(
        self,
        path: str,
        method: str,
        caller: Caller,
        headers: Mapping[str, str],
        receive: Receive,
        send: Send,
        *,
        added: RawHeaders,
    ) -> None:
        """Answer a request to one of `ROUTES`; the answer has the headers `added`, too."""
        reply = _Reply(send, added)
        try:
            if method != "POST":
                raise BadRequest("Method not allowed", 405, allow="POST")
            body = _json(await read_body(receive, headers, self._max_body_bytes))
            caller = decode.get_caller(body, caller)
            if path == "agents/execute":
                await run_until_disconnect(self._run(body, caller, reply), receive, None)
            else:
                await run_until_disconnect(self._answer(path, body, caller, reply), receive, None)
        except BadRequest as error:
            await reply.refuse(error.status, error.message, error.allow)
        except CopilotError as error:
            if not reply.begun:
                await reply.refuse(_status(error), error.message)
        except (ClientGone, WriteTimeout):
            pass  # nobody is left to be told
        except Exception:  # of hooks, stores and agents: told to the client, masked
            if reply.begun:
                raise
            logger.exception("A request to the remote endpoint failed")
            await reply.refuse(500, RUN_FAILED.message)

    async def _answer(self, path: str, body: JsonObject, caller: Caller, reply: "_Reply") -> None:
        await reply.json(200, await self._answers[path](body, caller))

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
        caller = self._program_runs.known(caller)
        agent = await self._program_runs.conversations.agent(name, caller)
        found = await agent.load_state(private_thread_id(caller.user, thread), caller)
        state, messages = found or ({}, [])
        known = {"threadId": thread, "threadExists": found is not None}
        return {**known, "state": state, "messages": messages}

    async def _run(self, body: JsonObject, caller: Caller, reply: "_Reply") -> None:
        """Write the run of an agent as a v1 browser wants it, and nothing after a failure.

        Node knows no word for that; what it does see is an answer without an end.
        """
        fields = decode.run_fields(body, self._max_messages)
        ours = {action.name for action in await self._program_runs.actions(caller)}
        theirs = fields.pop("actions")
        others = [action for action in theirs if action.name not in ours]
        run = self._program_runs.build_run(caller, **fields, actions=others)
        lines = Lines(run, quiet=ours.intersection(action.name for action in theirs))
        at_work = track_v1_state(self._program_runs.events(run), replace(run, follow_up="client"))
        async with aclosing(at_work) as events:
            await anext(events)  # what forbids the run to begin is told by a status
            stream = await reply.stream(self._write_timeout, self._keep_alive)
            try:
                async for event in events:
                    if text := lines.feed(event):
                        await stream.write(text)
                if not lines.failed:
                    await stream.write(b"", last=True)
            finally:
                stream.close()


class _Reply:
    """What is written to one client."""

    def __init__(self, send: Send, headers: RawHeaders) -> None:
        self._send = send
        self._headers = headers
        self.begun = False

    async def json(self, status: int, body: JsonObject, allow: str = "") -> None:
        text = dumps(body)
        extra = [(b"allow", allow.encode())] if allow else []
        await self._start(status, [(b"content-length", str(len(text)).encode()), *extra])
        await self._send({"type": "http.response.body", "body": text})

    async def refuse(self, status: int, message: str, allow: str = "") -> None:
        await self.json(status, {"error": message}, allow)

    async def stream(self, write_timeout: float, keep_alive: float) -> Stream:
        await self._start(200, UNBUFFERED)
        return Stream(self._send, write_timeout, keep_alive=keep_alive, comment=_EMPTY_LINE)

    async def _start(self, status: int, headers: RawHeaders) -> None:
        self.begun = True
        every = [(b"content-type", b"application/json"), *headers, *self._headers]
        await self._send({"type": "http.response.start", "status": status, "headers": every})


def _json(body: bytes) -> JsonObject:
    try:
        return require_object(loads(body), "body")
    except ValueError:
        raise BadRequest("The request body is no JSON.") from None


def _status(error: CopilotError) -> int:
    """Return the status that tells of an error.

    Node asks again, up to three times, when it reads of a server that is busy or down. That is
    for runs which did not begin: an action must not be run twice.
    """
    if isinstance(error, RunEnded):
        return 404 if error.code == NotFound.code else 500
    return 404 if isinstance(error, NotFound) else error.status_code
