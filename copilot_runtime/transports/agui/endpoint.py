"""What an AG-UI client asks, over REST routes or one endpoint, and what it gets.

Both ways end in the same operations. Contract: CopilotKit 1.50 to 1.74.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from starlette.types import Receive, Scope, Send

from copilot_runtime.adapters.transcription import Transcriber
from copilot_runtime.conversations import Conversations
from copilot_runtime.errors import (
    AgentNotFound,
    AuthenticationFailed,
    CopilotError,
    LimitExceeded,
    Misuse,
    NotFound,
    report_of,
)
from copilot_runtime.events import Event, RunFailed, RunStarted
from copilot_runtime.interfaces import DEFAULT_AGENT, Agent, Caller, RunInput
from copilot_runtime.jsontext import loads
from copilot_runtime.security.cors import Cors
from copilot_runtime.transports.agui import threads
from copilot_runtime.transports.agui.decode import run_input
from copilot_runtime.transports.agui.encode import Dialect, Encoder
from copilot_runtime.transports.agui.info import info
from copilot_runtime.transports.agui.reply import Reply
from copilot_runtime.transports.agui.routes import Operation, Refusal, from_envelope, from_path
from copilot_runtime.transports.agui.transcribe import transcribe_form, transcribe_json
from copilot_runtime.transports.request import BadRequest, ClientGone, read_body
from copilot_runtime.transports.stream import Stalled, attended

logger = logging.getLogger(__name__)


class AguiEndpoint:
    """Answers AG-UI requests. Sizes are in bytes, times in seconds.

    `properties` are the operator's; those of the client come on top. `chat` says whether the
    plain chat is offered as the agent `default`, where no other is called that.
    """

    def __init__(
        self,
        conversations: Conversations,
        *,
        chat: bool = True,
        properties: Mapping[str, Any] | None = None,
        cors: Cors | None = None,
        dialect: Dialect | None = None,
        transcriber: Transcriber | None = None,
        max_body_bytes: int = 16 * 1024 * 1024,
        max_messages: int = 2000,
        write_timeout: float = 60.0,
        keep_alive: float = 15.0,
    ) -> None:
        self._conversations = conversations
        self._chat = chat
        self._properties = properties or {}
        self._cors = cors or Cors()
        self._dialect = dialect or Dialect()
        self._transcriber = transcriber
        self._max_body_bytes = max_body_bytes
        self._max_messages = max_messages
        self._write_timeout = write_timeout
        self._keep_alive = keep_alive

    async def rest(
        self,
        path: str,
        caller: Caller,
        scope: Scope,
        headers: Mapping[str, str],
        receive: Receive,
        send: Send,
    ) -> None:
        """Answer a request to a path below the base, still encoded."""
        reply = self._reply(headers, send)
        query = scope.get("query_string", b"").decode("latin-1")

        async def read() -> Operation:
            operation = from_path(scope["method"], path, query)
            if operation.name in _WITHOUT_BODY:
                return operation
            body = await read_body(receive, headers, self._max_body_bytes)
            if operation.name == "transcribe":
                kind = headers.get("content-type", "")
                return _with_body(operation, (kind, body))
            return _with_body(operation, _json(body) if body.strip() else None)

        await self._answer(read, caller, receive, reply)

    async def single(
        self,
        envelope: Mapping[str, Any],
        caller: Caller,
        headers: Mapping[str, str],
        receive: Receive,
        send: Send,
    ) -> None:
        """Answer a request to the base itself: an envelope, or a run of the default agent."""
        reply = self._reply(headers, send)

        async def read() -> Operation:
            await read_body(receive, headers, self._max_body_bytes)  # known already
            if "method" in envelope:
                return from_envelope(envelope)
            return Operation(name="run", agent=DEFAULT_AGENT, body=envelope)

        await self._answer(read, caller, receive, reply)

    async def _answer(
        self,
        read: Callable[[], Awaitable[Operation]],
        caller: Caller,
        receive: Receive,
        reply: Reply,
    ) -> None:
        try:
            operation = await read()
            await self._do(operation, caller, receive, reply)
        except Refusal as refusal:
            await reply.json(refusal.status, refusal.body, refusal.headers)
        except BadRequest as error:
            await reply.json(error.status, {"error": "invalid_request", "message": error.message})
        except CopilotError as error:
            refusal = _refusal(error)
            await reply.json(refusal.status, refusal.body)
        except (ClientGone, Stalled):
            pass  # nobody is left to be told

    async def _do(
        self, operation: Operation, caller: Caller, receive: Receive, reply: Reply
    ) -> None:
        match operation.name:
            case "run" | "suggest":
                run = await self._run_input(operation, caller)
                gone = None if run.kept else (lambda: self._stop(run))
                await attended(self._run(run, reply), receive, gone)
            case "connect":
                run = await self._run_input(operation, caller)  # only to refuse what is wrong
                key = threads.thread_key(caller, run.thread_id)
                await attended(self._connect(key, operation.agent, reply), receive, None)
            case _:
                status, body = await self._value(operation, caller)
                await reply.json(status, body)

    async def _value(self, operation: Operation, caller: Caller) -> tuple[int, Any]:
        """Return status and body of what is answered at once."""
        conversations = self._conversations
        key = threads.thread_key(caller, operation.thread)
        match operation.name:
            case "info":
                agents = await self._agents(caller)
                return 200, info(agents, transcription=self._transcriber is not None)
            case "stop":
                await self._agent(operation.agent, caller)
                return 200, self._stopped(operation, caller)
            case "list threads":
                query = threads.thread_query(caller, operation.query)
                return 200, threads.page(await conversations.list(query))
            case "read messages":
                return 200, {"messages": threads.messages(await conversations.store.runs(key))}
            case "read events":
                runs = await conversations.store.runs(key)
                return 200, {"events": threads.events(key, runs, self._dialect)}
            case "read state":
                return 200, {"state": threads.state(await conversations.store.runs(key))}
            case "change thread":
                name, archived = _changes(operation.body)
                changed = await conversations.update(key, name=name, archived=archived)
                return 200, threads.thread(changed)
            case "archive thread":
                await conversations.update(key, archived=True)
                return 200, {"threadId": operation.thread, "archived": True}
            case "delete thread":
                await conversations.delete(key)
                return 200, {"threadId": operation.thread, "deleted": True}
            case "transcribe":
                if isinstance(operation.body, tuple):
                    return await transcribe_form(self._transcriber, *operation.body)
                return await transcribe_json(self._transcriber, operation.body)
            case "forget nothing" | "inspect":
                return 204, None
            case _:
                message = f"This server does not {operation.name}: that needs CopilotKit's cloud."
                return 422, {"error": message}

    async def _run(self, run: RunInput, reply: Reply) -> None:
        """Start a run and write it as it grows; what forbids it to start is an event, too."""
        encoder = Encoder(
            run.thread_id, run.run_id, agent=run.agent or DEFAULT_AGENT, dialect=self._dialect
        )
        try:
            await asyncio.shield(self._conversations.start(run))
            log = self._conversations.follow(run.key)
        except AgentNotFound:
            raise _no_agent(run.agent or DEFAULT_AGENT) from None
        except AuthenticationFailed:
            raise
        except Exception as error:  # also of hooks and agents: told to the client, masked
            async with reply.stream() as stream:
                frames = encoder.feed([RunFailed(error=report_of(error))])
                await stream.write(b"".join(frames), last=True)
            return
        try:
            async with reply.stream() as stream, aclosing(log) as batches:
                async for _, events in batches:
                    if frames := encoder.feed(events):
                        await stream.write(b"".join(frames), last=encoder.ended)
        finally:
            if not run.kept:
                self._stop(run)

    async def _connect(self, key: threads.ThreadKey, agent: str, reply: Reply) -> None:
        """Write a thread from its beginning, and go on with the run it is answering with."""
        runs, live = await self._conversations.history(key)
        async with reply.stream() as stream:
            frames = [frame for run in runs for frame in threads.replay(key, run, self._dialect)]
            if frames:
                await stream.write(b"".join(frames))
            if live is not None:
                encoder: Encoder | None = None
                async with aclosing(self._conversations.follow(live)) as batches:
                    async for _, events in batches:
                        encoder = encoder or self._encoder(key, events[0], agent)
                        if frames := encoder.feed(events):
                            await stream.write(b"".join(frames))
            await stream.write(b"", last=True)

    def _encoder(self, key: threads.ThreadKey, first: Event, agent: str) -> Encoder:
        """Return an encoder for the run that begins with this event."""
        assert isinstance(first, RunStarted), "the runtime writes the first event of every log"
        return Encoder(key.id, first.run_id, agent=agent, dialect=self._dialect)

    def _stop(self, run: RunInput) -> None:
        self._conversations.stop(run.key)

    def _stopped(self, operation: Operation, caller: Caller) -> dict[str, Any]:
        body = {} if operation.body is None else operation.body
        if not isinstance(body, dict) or body.keys() - {"runId"}:
            raise Misuse("The body of stop is empty, or {runId}.")
        run_id = body.get("runId")
        if run_id is not None and not isinstance(run_id, str):
            raise Misuse("runId must be a string.")
        key = threads.thread_key(caller, operation.thread)
        if not self._conversations.stop_thread(key, run_id):
            message = f"No active run for thread '{operation.thread}'."
            return {"stopped": False, "message": message}
        interrupt = {"type": "RUN_ERROR", "message": "Run stopped by user", "code": "STOPPED"}
        return {"stopped": True, "interrupt": interrupt}

    async def _run_input(self, operation: Operation, caller: Caller) -> RunInput:
        agent = await self._agent(operation.agent, caller)
        return self._read(operation, caller, agent, kept=operation.name == "run")

    def _read(
        self, operation: Operation, caller: Caller, agent: str | None, *, kept: bool = True
    ) -> RunInput:
        return run_input(
            operation.body,
            caller,
            agent=agent,
            properties=self._properties,
            max_messages=self._max_messages,
            kept=kept,
        )

    async def _agents(self, caller: Caller) -> Mapping[str, Agent]:
        """Return all agents, the plain chat among them."""
        agents = await self._conversations.agents_for(caller)
        if not self._chat or DEFAULT_AGENT in agents:
            return agents
        return {DEFAULT_AGENT: self._conversations.chat, **agents}

    async def _agent(self, name: str, caller: Caller) -> str | None:
        """Return the runtime's name of an agent: None is the plain chat. Raises `Refusal`."""
        agents = await self._agents(caller)
        if name not in agents:
            raise _no_agent(name)
        return None if agents[name] is self._conversations.chat else name

    def _reply(self, headers: Mapping[str, str], send: Send) -> Reply:
        return Reply(
            send,
            self._cors.headers(headers),
            write_timeout=self._write_timeout,
            keep_alive=self._keep_alive,
        )


_WITHOUT_BODY = {"info", "inspect", "list threads", "read messages", "read events", "read state"}


def _with_body(operation: Operation, body: Any) -> Operation:
    return replace(operation, body=body)


def _json(body: bytes) -> Any:
    try:
        return loads(body)
    except ValueError as error:
        details = {"error": "Invalid request body", "details": str(error)}
        raise Refusal(400, details) from None


def _changes(body: Any) -> tuple[str | None, bool | None]:
    """Read what is to change of a thread. Raises `Misuse`."""
    fields = body if isinstance(body, dict) else {}
    name, archived = fields.get("name"), fields.get("archived")
    if name is not None and not isinstance(name, str):
        raise Misuse("name must be a string.")
    if archived is not None and not isinstance(archived, bool):
        raise Misuse("archived must be true or false.")
    if name is None and archived is None:
        raise Misuse("Give a name, or whether the thread is archived.")
    return name, archived


def _no_agent(name: str) -> Refusal:
    message = f"Agent '{name}' does not exist"
    return Refusal(404, {"error": "Agent not found", "message": message})


def _refusal(error: CopilotError) -> Refusal:
    """Return what a client gets for an error before there is a stream."""
    match error:
        case Misuse() | LimitExceeded():
            body = {"error": "Invalid request body", "details": error.message}
        case NotFound():
            body = {"error": "Not found", "message": error.message}
        case _:
            body = {"error": error.code.lower(), "message": error.message}
    return Refusal(error.status_code, body)
