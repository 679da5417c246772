"""Respond to AG-UI requests, over REST routes or as envelopes to a single endpoint.

Both kinds map to the same operations. Contract: CopilotKit 1.50 to 1.74, and AG-UI 1.0.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import replace
from typing import NamedTuple

from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from copilot_runtime.agui.parts import is_legacy
from copilot_runtime.api.adapter import Transcriber
from copilot_runtime.api.agent import DEFAULT_AGENT
from copilot_runtime.api.bus import START, Batch
from copilot_runtime.api.events import Event, RunFailed, RunFinished, RunStarted
from copilot_runtime.api.identity import Caller
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.api.user_memories import UserMemories
from copilot_runtime.base.concurrency import wait_at_most
from copilot_runtime.base.errors import (
    AgentNotFound,
    AuthenticationFailed,
    LimitExceeded,
    build_error_report,
)
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import JsonObject, optional_text
from copilot_runtime.runtime.run import Log
from copilot_runtime.transports import trace_ids
from copilot_runtime.transports.agui import threads
from copilot_runtime.transports.agui.decode import PROXIED_REQUEST, AppRequests, run_input
from copilot_runtime.transports.agui.encode import Dialect, Encoder
from copilot_runtime.transports.agui.errors import (
    Refusal,
    no_agent,
    no_json,
    refusal_of,
)
from copilot_runtime.transports.agui.handlers import AgentNames, Answers
from copilot_runtime.transports.agui.overrides import Playground, read_overrides
from copilot_runtime.transports.agui.routes import (
    READS,
    SCOPES,
    Operation,
    from_envelope,
    from_path,
)
from copilot_runtime.transports.request import Request
from copilot_runtime.transports.streaming import Stream, run_until_disconnect
from copilot_runtime.transports.thread_push.push import ThreadPush
from copilot_runtime.transports.thread_push.sse import answer_changes
from copilot_runtime.transports.transport import Services, Transport

logger = logging.getLogger(__name__)


class AguiEndpoint(Transport):
    """Responds to AG-UI requests, over REST routes or as envelopes at the URL itself."""

    paths = (
        "",
        "info",
        "agent/{rest:path}",
        "threads",
        "threads/{rest:path}",
        "transcribe",
        "annotate",
        "memories",
        "memories/{rest:path}",
        "inspector-metadata",
        "cpk-debug-events",
    )

    def __init__(self, services: Services) -> None:
        settings = services.settings
        self._conversations = services.runs
        self._names = AgentNames(services.runs, chat=services.serves_chat)
        self._dialect = Dialect(
            reasoning=settings.reasoning_events,
            subagents=settings.subagent_events,
            interrupts=settings.interrupt_events,
        )
        self._current_dialect = replace(self._dialect, legacy=False)
        self._answers = Answers(
            services.runs,
            self._names,
            dialect=self._dialect,
            transcriber=services.parts.find(Transcriber),
            info=services.info,
            push=services.parts.find(ThreadPush),
            memories=services.parts.find(UserMemories),
        )
        self._push = services.parts.find(ThreadPush)
        self._app_proxy = services.parts.find(AppRequests)
        self._playground = services.parts.find(Playground)
        self._max_messages = settings.max_messages
        self._max_items = settings.max_items
        self._keep_alive = settings.keep_alive
        self._starting: set[asyncio.Task[_Start]] = set()

    async def accepts(self, request: Request) -> bool:
        """Accept all paths below the URL, and non-GraphQL requests at the URL itself."""
        if request.path:
            return not request.is_websocket
        return await request.is_envelope()

    def routes(self, path: str, router: ASGIApp) -> Sequence[BaseRoute]:
        """Return the typed routes of threads and agents."""
        from copilot_runtime.transports.agui.rest import rest_routes  # imports FastAPI

        return rest_routes(path, router)

    def refuse(self, error: Exception) -> Refusal:
        """Return the refusal for an error in the format of CopilotKit's own server."""
        return refusal_of(error)

    async def limit(self, request: Request, error: LimitExceeded) -> None:
        """Refuse a run with an event, like other errors before its start; the body is not read."""
        if await _find_operation_name(request) not in ("run", "ask", "suggest"):
            raise error
        encoder = Encoder("", "", agent="", dialect=self._dialect)
        async with self._stream(request) as stream:
            frames = encoder.feed([RunFailed(error=error.report())])
            await stream.write(b"".join(frames), last=True)

    async def __call__(self, request: Request) -> None:
        operation = await _read_operation(request)
        request.action, request.thread = operation.name, operation.thread
        request.is_read = operation.name in READS
        if scope := SCOPES.get(operation.name):
            request.caller.identity.require(scope)
        match operation.name:
            case "run" | "ask" | "suggest":
                run = await self._run_input(operation, request.caller)
                overrides = read_overrides(operation.body, request, self._playground)
                if overrides is not None:
                    run = replace(run, overrides=overrides)
                request.starts_run = True
                request.thread, request.run = run.thread_id, run.run_id
                if run.properties.get(PROXIED_REQUEST) is not None:
                    answer = self._answer_app(run, request, self._negotiate(operation))
                    await run_until_disconnect(answer, request.receive, None)
                    return
                gone = None if run.persist else (lambda: self._stop(run))
                work = self._run(run, request, self._negotiate(operation))
                request.release_body()
                del operation  # it has the body, too, and an answer may take minutes
                await run_until_disconnect(work, request.receive, gone)
            case "connect":
                run = await self._run_input(operation, request.caller)  # validates the request
                request.thread = run.thread_id
                key = threads.thread_key(request.caller, run.thread_id)
                dialect = self._negotiate(operation)
                work = self._connect(key, operation.agent, request, dialect)
                await run_until_disconnect(work, request.receive, None)
            case "follow threads" if self._push is not None:
                query = threads.thread_query(request.caller, operation.query)
                await answer_changes(self._push, query, request, keep_alive=self._keep_alive)
            case _:
                await request.respond(*await self._answer(operation, request))

    async def _answer(self, operation: Operation, request: Request) -> tuple[int, bytes]:
        """Return the status and the encoded body; the decoded body is not kept in memory."""
        socket_url = ""
        if operation.name in ("info", "list threads") and self._push is not None:
            socket_url = self._push.find_url(request)
        status, body = await self._answers.of(operation, request.caller, socket_url=socket_url)
        return status, b"" if body is None else dumps(body)

    def _negotiate(self, operation: Operation) -> Dialect:
        """Return the dialect for the client's protocol version. Raises `Misuse`."""
        declared = optional_text(operation.body, "protocolVersion")
        return self._dialect if is_legacy(declared) else self._current_dialect

    async def _run(self, run: RunInput, request: Request, dialect: Dialect) -> None:
        """Start a run and stream its events; an error before its start is an event, too.

        If the start takes long, for example in a queue, the response begins meanwhile, because
        proxies and clients would time out.
        """
        beginning = self._spawn_start(run, request)
        await wait_at_most(_SOON, beginning)
        start = beginning.result() if beginning.done() else None
        if start is not None and start.error is not None:
            _raise_status(start.error, run)
            request.set_retry_after(start.error)
        headers = trace_ids.build_headers(start.trace_id, request) if start is not None else None
        async with self._stream(request, headers) as stream:
            if start is None:
                await stream.write(KEEP_ALIVE)
                start = await asyncio.shield(beginning)
            await self._write(run, start, stream, dialect)

    async def _answer_app(self, run: RunInput, request: Request, dialect: Dialect) -> None:
        """Respond to a request of an MCP app to its server, which has the form of a run."""
        last: RunFinished | RunFailed
        try:
            run = await self._conversations.authorize(run)
            last = RunFinished(result=await self._ask_app_server(run, request))
        except AgentNotFound as error:
            raise no_agent(run.agent_name, error.agents) from None
        except AuthenticationFailed:
            raise
        except Exception as error:  # even of hooks: clients get no details
            last = RunFailed(error=build_error_report(error))
        events = (RunStarted(run_id=run.run_id, thread_id=run.thread_id), last)
        encoder = Encoder(run.thread_id, run.run_id, agent=run.agent_name, dialect=dialect)
        async with self._stream(request) as stream:
            await stream.write(b"".join(encoder.feed(events)), last=True)

    async def _ask_app_server(self, run: RunInput, request: Request) -> JsonObject:
        if self._app_proxy is None:
            return {"error": "This agent has no MCP servers with apps."}
        return await self._app_proxy.answer(run, request.client_host)

    async def _write(
        self, run: RunInput, start: "_Start", stream: Stream, dialect: Dialect
    ) -> None:
        encoder = Encoder(
            run.thread_id,
            run.run_id,
            agent=run.agent_name,
            dialect=dialect,
            trace_id=start.trace_id,
        )
        try:
            await stream.write_log(start.log, lambda events: b"".join(encoder.feed(events)))
        finally:
            if not run.persist:
                self._stop(run)

    def _spawn_start(self, run: RunInput, request: Request) -> "asyncio.Task[_Start]":
        """Start a run in a task that survives a disconnect of the client."""
        task = asyncio.create_task(self._start_run(run, request))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)
        return task

    async def _start_run(self, run: RunInput, request: Request) -> "_Start":
        """Start a run and return its log, which may be deleted as soon as the run has ended.

        For a repeated request, that is the log of the run of the first one.
        """
        try:
            found, log = await self._conversations.start_once(run)
        except Exception as error:  # even of hooks and agents, which the runtime has logged
            return _Start(_log_failure(error), error=error.with_traceback(None))
        if found is None:
            request.starts_run = False  # so the audit log has it as a request
            return _Start(threads.split_log(log))
        return _Start(log, trace_ids.find_trace_id(found, request.headers, run.properties))

    async def _connect(
        self, key: threads.ThreadKey, agent: str, request: Request, dialect: Dialect
    ) -> None:
        """Replay a thread from its beginning, then stream its active run."""
        runs, log = await self._conversations.history(key)
        async with self._stream(request) as stream:
            replay = threads.replay(key, runs, dialect, goes_on=log is not None)
            await stream.write_each(replay)
            if log is not None:
                encoder: Encoder | None = None
                async with aclosing(log) as batches:
                    async for _, events in batches:
                        encoder = encoder or _build_encoder(key, events[0], agent, dialect)
                        if frames := encoder.feed(events):
                            await stream.write(b"".join(frames))
            await stream.write(b"", last=True)

    def _stop(self, run: RunInput) -> None:
        self._conversations.stop(run.log_id)

    async def _run_input(self, operation: Operation, caller: Caller) -> RunInput:
        return run_input(
            operation.body,
            caller,
            agent=await self._names.resolve(operation.agent, caller),
            max_messages=self._max_messages,
            max_items=self._max_items,
            name=operation.name,
        )

    def _stream(
        self, request: Request, headers: Mapping[str, str] | None = None
    ) -> AbstractAsyncContextManager[Stream]:
        return request.stream(
            "text/event-stream",
            keep_alive=self._keep_alive,
            comment=KEEP_ALIVE,
            headers=headers,
        )


class _Start(NamedTuple):
    """The start of a run: its log, its trace id if the client requests it, and its error."""

    log: Log
    trace_id: str = ""
    error: Exception | None = None


async def _log_failure(error: Exception) -> Log:
    """Yield the log of a run that did not start. Clients get no details."""
    yield Batch(START, (RunFailed(error=build_error_report(error)),))


def _raise_status(error: Exception, run: RunInput) -> None:
    """Raise the errors of a start that are a status of the response; others are events."""
    if isinstance(error, AgentNotFound):
        raise no_agent(run.agent_name, error.agents)
    if isinstance(error, AuthenticationFailed):
        raise error


KEEP_ALIVE = b": keep-alive\n\n"
"""A comment in an event stream, which clients ignore."""

_SOON = 1.0
"""Seconds in which nearly every run has started or failed to start."""

_WITHOUT_BODY = {
    *("info", "inspect", "list threads", "follow threads"),
    *("read messages", "read events", "read state"),
}


def _build_encoder(key: threads.ThreadKey, first: Event, agent: str, dialect: Dialect) -> Encoder:
    """Return an encoder for the run whose first event this is."""
    assert isinstance(first, RunStarted), "the runtime writes the first event of every log"
    return Encoder(key.id, first.run_id, agent=agent, dialect=dialect)


async def _find_operation_name(request: Request) -> str:
    """Return the name of an operation; the body is only read if the URL does not name it."""
    if request.path:
        return from_path(request.method, request.path, request.query_string).name
    envelope = await request.json()
    return from_envelope(envelope).name if "method" in envelope else "run"


async def _read_operation(request: Request) -> Operation:
    """Return the requested operation. Raises `Refusal`, and the errors of `Request.body`."""
    if not request.path:
        envelope = await request.json()
        if "method" in envelope:
            return from_envelope(envelope)
        return Operation(name="run", agent=DEFAULT_AGENT, body=envelope)
    operation = from_path(request.method, request.path, request.query_string)
    if operation.name in _WITHOUT_BODY:
        return operation
    body = await request.body()
    if operation.name == "transcribe":
        return operation._replace(body=(body, request.headers.get("content-type", "")))
    if not body.strip():
        return operation
    try:
        return operation._replace(body=await request.json())
    except ValueError as error:
        raise no_json(str(error)) from None
