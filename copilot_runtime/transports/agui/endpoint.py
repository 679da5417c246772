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
from copilot_runtime.errors import AgentNotFound, AuthenticationFailed, CopilotError, report_of
from copilot_runtime.events import Event, RunFailed, RunStarted
from copilot_runtime.interfaces import DEFAULT_AGENT, Caller, RunInput
from copilot_runtime.jsontext import loads
from copilot_runtime.runtime.conversations import Conversations, Log
from copilot_runtime.security.cors import Cors
from copilot_runtime.transports.agui import threads
from copilot_runtime.transports.agui.decode import run_input
from copilot_runtime.transports.agui.encode import Dialect, Encoder
from copilot_runtime.transports.agui.errors import (
    Refusal,
    invalid,
    no_agent,
    no_json,
    refusal_of,
)
from copilot_runtime.transports.agui.handlers import Answers
from copilot_runtime.transports.agui.offer import Offer
from copilot_runtime.transports.agui.reply import KEEP_ALIVE, Reply
from copilot_runtime.transports.agui.routes import Operation, from_envelope, from_path
from copilot_runtime.transports.body import BadRequest, ClientGone, read_body
from copilot_runtime.transports.streaming import Stream, WriteTimeout, run_until_disconnect

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
        self._offer = Offer(conversations, chat=chat)
        self._properties = properties or {}
        self._cors = cors or Cors()
        self._dialect = dialect or Dialect()
        self._answers = Answers(
            conversations, self._offer, dialect=self._dialect, transcriber=transcriber
        )
        self._max_body_bytes = max_body_bytes
        self._max_messages = max_messages
        self._write_timeout = write_timeout
        self._keep_alive = keep_alive
        self._starting: set[asyncio.Task[Log]] = set()

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
            refusal = invalid(error.message, error.status)
            await reply.json(refusal.status, refusal.body)
        except (ClientGone, WriteTimeout):
            pass  # nobody is left to be told
        except Exception as error:  # also of stores and agents: told to the client, masked
            if reply.begun:
                raise
            if not isinstance(error, CopilotError):
                logger.exception("A request failed")
            refusal = refusal_of(error)
            await reply.json(refusal.status, refusal.body)

    async def _do(
        self, operation: Operation, caller: Caller, receive: Receive, reply: Reply
    ) -> None:
        match operation.name:
            case "run" | "ask" | "suggest":
                run = await self._run_input(operation, caller)
                gone = None if run.persist else (lambda: self._stop(run))
                await run_until_disconnect(self._run(run, reply), receive, gone)
            case "connect":
                run = await self._run_input(operation, caller)  # only to refuse what is wrong
                key = threads.thread_key(caller, run.thread_id)
                await run_until_disconnect(
                    self._connect(key, operation.agent, reply), receive, None
                )
            case _:
                status, body = await self._answers.of(operation, caller)
                await reply.json(status, body)

    async def _run(self, run: RunInput, reply: Reply) -> None:
        """Start a run and write it as it grows; what forbids it to start is an event, too.

        One that takes its time to start, such as one that waits for its turn, is answered
        meanwhile: proxies and clients do not wait for long.
        """
        beginning = self._begin_run(run)
        await asyncio.wait((beginning,), timeout=_SOON)
        if beginning.done() and not beginning.cancelled():
            match beginning.exception():
                case AgentNotFound():
                    raise no_agent(run.agent or DEFAULT_AGENT)
                case AuthenticationFailed() as error:
                    raise error
                case _:
                    pass
        async with reply.stream() as stream:
            if not beginning.done():
                await stream.write(KEEP_ALIVE)
            await self._write(run, beginning, stream)

    async def _write(self, run: RunInput, beginning: "asyncio.Task[Log]", stream: Stream) -> None:
        encoder = Encoder(
            run.thread_id, run.run_id, agent=run.agent or DEFAULT_AGENT, dialect=self._dialect
        )
        try:
            log = await asyncio.shield(beginning)
        except Exception as error:  # also of hooks and agents: told to the client, masked
            frames = encoder.feed([RunFailed(error=report_of(error))])
            await stream.write(b"".join(frames), last=True)
            return
        try:
            async with aclosing(log) as batches:
                async for _, events in batches:
                    if frames := encoder.feed(events):
                        await stream.write(b"".join(frames), last=encoder.ended)
        finally:
            if not run.persist:
                self._stop(run)

    def _begin_run(self, run: RunInput) -> "asyncio.Task[Log]":
        """Start a run, even if its client does not wait for that."""
        task = asyncio.create_task(self._start_run(run))
        self._starting.add(task)
        task.add_done_callback(self._note)
        return task

    def _note(self, task: "asyncio.Task[Log]") -> None:
        self._starting.discard(task)
        if not task.cancelled():
            task.exception()  # the client has left, and the runtime has logged it

    async def _start_run(self, run: RunInput) -> Log:
        """Start a run; return its log, which may be forgotten as soon as the run has ended."""
        return (await self._conversations.start(run)).follow()

    async def _connect(self, key: threads.ThreadKey, agent: str, reply: Reply) -> None:
        """Write a thread from its beginning, and go on with the run it is answering with."""
        runs, log = await self._conversations.history(key)
        async with reply.stream() as stream:
            told = threads.replay(key, runs, self._dialect, goes_on=log is not None)
            if frames := [*told]:
                await stream.write(b"".join(frames))
            if log is not None:
                encoder: Encoder | None = None
                async with aclosing(log) as batches:
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
        self._conversations.stop(run.log_id)

    async def _run_input(self, operation: Operation, caller: Caller) -> RunInput:
        return run_input(
            operation.body,
            caller,
            agent=await self._offer.name(operation.agent, caller),
            properties=self._properties,
            max_messages=self._max_messages,
            name=operation.name,
        )

    def _reply(self, headers: Mapping[str, str], send: Send) -> Reply:
        return Reply(
            send,
            self._cors.headers(headers),
            write_timeout=self._write_timeout,
            keep_alive=self._keep_alive,
        )


_SOON = 1.0
"""Seconds in which nearly every run has started, or is known not to."""

_WITHOUT_BODY = {"info", "inspect", "list threads", "read messages", "read events", "read state"}


def _with_body(operation: Operation, body: Any) -> Operation:
    return replace(operation, body=body)


def _json(body: bytes) -> Any:
    try:
        return loads(body)
    except ValueError as error:
        raise no_json(str(error)) from None
