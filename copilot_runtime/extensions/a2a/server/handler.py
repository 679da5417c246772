"""Implements the A2A operations: each task is a run, and its context a thread of the caller."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Generator, Iterable, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from uuid import uuid4

from a2a.server.context import ServerCallContext
from a2a.server.events import Event as A2aEvent
from a2a.server.request_handlers import RequestHandler
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)
from a2a.utils.errors import (
    A2AError,
    ExtendedAgentCardNotConfiguredError,
    InternalError,
    InvalidParamsError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)

from copilot_runtime.api.bus import Batch
from copilot_runtime.api.events import Event
from copilot_runtime.api.identity import Caller
from copilot_runtime.api.messages import Message as OurMessage
from copilot_runtime.api.run_input import Resume, RunInput
from copilot_runtime.api.transcript import fold_thread
from copilot_runtime.base.concurrency import retrieve_exception
from copilot_runtime.base.errors import (
    RUN_FAILED,
    CopilotError,
    LimitExceeded,
    Misuse,
    NotFound,
    ThreadBusy,
)
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.extensions.a2a.server.decode import (
    TaskKey,
    decode_answers,
    decode_message,
    derive_id,
    find_click,
    parse_task_id,
)
from copilot_runtime.extensions.a2a.server.encode import TaskLog
from copilot_runtime.extensions.generative_ui.a2ui.catalog import CATALOG_AVAILABLE
from copilot_runtime.extensions.generative_ui.a2ui.clicks import CLICK
from copilot_runtime.runtime.conversations import Conversations
from copilot_runtime.runtime.interrupts import find_asking_run
from copilot_runtime.runtime.run import Log, Run
from copilot_runtime.threads.log_ids import asks_same, build_log_id
from copilot_runtime.threads.store import StoredRun, ThreadKey
from copilot_runtime.threads.validation import check_thread_id

logger = logging.getLogger(__name__)

CALL = "copilot_runtime.a2a.call"
"""The key of the `Call` in the state of the package's request context."""

_STOP_TIMEOUT = 10.0
"""Timeout for a cancelled run to end, in seconds."""

_MOST_PER_PAGE = 100
_PER_PAGE = 50

_UNIQUE_LENGTH = 16
"""Length of a `messageId` that is assumed to be unique, such as a UUID. A shorter one, such as a
number, is unique only within its context."""

_Question = tuple[str, ...]
"""The identity of a message in a context: the agent, the identifiers and the content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The caller and the agent: `agent` is its public name, `target` that in the runtime."""

    caller: Caller
    agent: str
    target: str | None
    has_a2ui: bool = False
    """True if the client supports A2UI."""


def _convert(error: Exception) -> A2AError:
    """Return an exception as a protocol error; details of unexpected errors are omitted."""
    match error:
        case NotFound():
            return TaskNotFoundError()
        case Misuse() | LimitExceeded():
            return InvalidParamsError(message=error.public)
        case ThreadBusy():
            return UnsupportedOperationError(message=error.public)
        case CopilotError():
            logger.warning("A task could not begin: %s %s", error.message, error.hint or "")
            return InternalError(message=error.public)
        case _:  # any error of hooks, stores and agents
            logger.error("A request of an A2A client failed", exc_info=error)
            return InternalError(message=RUN_FAILED.message)


@contextmanager
def _protocol_errors() -> Generator[None]:
    """Convert all exceptions in a block to protocol errors."""
    try:
        yield
    except A2AError:
        raise
    except Exception as error:
        raise _convert(error) from error


class RunHandler(RequestHandler):
    """Starts, follows and stops the runs behind tasks.

    A task belongs to the user who started it; other users get `TaskNotFoundError`.
    """

    def __init__(self, conversations: Conversations, *, max_items: int) -> None:
        self._conversations = conversations
        self._max_items = max_items
        self._starting: set[asyncio.Task[tuple[Run | None, Log]]] = set()

    async def on_message_send(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> Task | Message:
        """Return the task when it ends or waits for input, or at once if requested."""
        with _protocol_errors():
            configuration = params.configuration
            log, events = await self._begin(_get_call(context), params)
            async with aclosing(events):
                async for batch in events:
                    _feed(log, batch.events)
                    if configuration.return_immediately:
                        break
            has_length = configuration.HasField("history_length")
            return log.build_task(configuration.history_length if has_length else None)

    async def on_message_send_stream(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[A2aEvent]:
        """Yield the new task, then its updates. The client may disconnect and resubscribe."""
        with _protocol_errors():
            log, events = await self._begin(_get_call(context), params)
            async with aclosing(_follow(log, events, catch_up=False)) as updates:
                async for update in updates:
                    yield update

    async def on_subscribe_to_task(
        self, params: SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[A2aEvent]:
        """Yield an active task, then its updates."""
        with _protocol_errors():
            call = _get_call(context)
            key, runs = await self._find_task(call, params.id)
            log = _fold(key, [run for run in runs if run.ended])
            if runs[-1].ended:
                raise UnsupportedOperationError(message="The task does not go on of itself.")
            thread = _thread(call, key.thread_id)
            events = await self._conversations.follow_run(thread, runs[-1].log_id)
            async with aclosing(_follow(log, events, catch_up=True)) as updates:
                async for update in updates:
                    yield update

    async def on_get_task(self, params: GetTaskRequest, context: ServerCallContext) -> Task:
        """Return the current state of a task."""
        with _protocol_errors():
            key, runs = await self._find_task(_get_call(context), params.id)
            has_length = params.HasField("history_length")
            return _fold(key, runs).build_task(params.history_length if has_length else None)

    async def on_list_tasks(
        self, params: ListTasksRequest, context: ServerCallContext
    ) -> ListTasksResponse:
        """Return the tasks of one context, the latest first."""
        with _protocol_errors():
            call = _get_call(context)
            if not params.context_id:
                raise InvalidParamsError(message="Name a contextId: tasks are listed by context.")
            found = [
                log
                for log in reversed(await self._fold_thread(call, params.context_id))
                if params.status in (TaskState.TASK_STATE_UNSPECIFIED, log.status.state)
            ]
            start = _read_offset(params.page_token)
            size = max(1, min(params.page_size or _PER_PAGE, _MOST_PER_PAGE))
            page = found[start : start + size]
            has_more = start + size < len(found)
            return ListTasksResponse(
                tasks=[log.build_task(params.history_length) for log in page],
                next_page_token=str(start + size) if has_more else "",
                page_size=size,
                total_size=len(found),
            )

    async def on_cancel_task(self, params: CancelTaskRequest, context: ServerCallContext) -> Task:
        """Stop a task's run, and return the task after it has ended."""
        with _protocol_errors():
            call = _get_call(context)
            key, runs = await self._find_task(call, params.id)
            thread = _thread(call, key.thread_id)
            if not await self._conversations.stop_thread(thread, key.run_id):
                raise TaskNotCancelableError(
                    message="The task does not go on: it has ended, or waits for an answer."
                )
            log = _fold(key, [run for run in runs if run.ended])
            async with asyncio.timeout(_STOP_TIMEOUT):
                events = await self._conversations.follow_run(thread, runs[-1].log_id)
                async with aclosing(events):
                    async for batch in events:
                        _feed(log, batch.events)
            return log.build_task()

    async def _refuse_push_notifications(self, params: Any, context: Any) -> Any:
        del params, context
        raise PushNotificationNotSupportedError

    on_create_task_push_notification_config = _refuse_push_notifications
    on_get_task_push_notification_config = _refuse_push_notifications
    on_list_task_push_notification_configs = _refuse_push_notifications
    on_delete_task_push_notification_config = _refuse_push_notifications

    async def on_get_extended_agent_card(self, params: Any, context: Any) -> Any:
        del params, context
        raise ExtendedAgentCardNotConfiguredError

    async def _begin(self, call: Call, params: SendMessageRequest) -> tuple[TaskLog, Log]:
        """Start the run for a message; return its task so far and its events.

        A repeated message returns the task that it started or continued.
        """
        message = params.message
        if len(message.parts) > self._max_items:
            raise InvalidParamsError(message=f"A message may have {self._max_items} parts.")
        question = _describe(call, message)
        if message.task_id:
            log, run = await self._continue_task(call, message, question)
        else:
            log, run = await self._new_task(call, message, question)
        if run is not None:
            started, events = await self._start(run)
            if started is not None:
                return log, events
            await events.aclose()
        return await self._reopen_task(call, log.task_id)

    async def _start(self, run: RunInput) -> tuple[Run | None, Log]:
        """Start a run, even if the client disconnects meanwhile; return it and its log.

        The run is None if the same message was sent before.
        """
        start = self._conversations.start_once(run)
        task = asyncio.create_task(start, name=f"start:{run.log_id}")
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)
        task.add_done_callback(retrieve_exception)
        return await asyncio.shield(task)

    async def _reopen_task(self, call: Call, task_id: str) -> tuple[TaskLog, Log]:
        """Return a task without its last run, and that run's events."""
        key, runs = await self._find_task(call, task_id)
        *before, last = runs
        log = _fold(key, before)
        if last.ended:
            return log, _replay(last)
        thread = _thread(call, key.thread_id)
        return log, await self._conversations.follow_run(thread, last.log_id)

    async def _new_task(
        self, call: Call, message: Message, question: _Question
    ) -> tuple[TaskLog, RunInput]:
        thread_id = message.context_id or _build_context_id(call, message, question)
        check_thread_id("contextId", thread_id)
        text, click = decode_message(message), find_click(message)
        if text is None and click is None:
            raise InvalidParamsError(message="The message has nothing in it.")
        runs = await self._conversations.runs(_thread(call, thread_id))
        messages: Sequence[OurMessage] = fold_thread(run.events for run in runs)
        key = TaskKey(thread_id, derive_id(*question))
        messages = [*messages, *([text] if text else [])]
        run = _build_run(call, key, question, messages, click=click)
        return TaskLog(key.task_id, thread_id), run

    async def _continue_task(
        self, call: Call, message: Message, question: _Question
    ) -> tuple[TaskLog, RunInput | None]:
        """Return the task that waits for input, and the run that continues it.

        The run is None if the same answer was sent before. Raises `UnsupportedOperationError` if
        the task does not wait for input.
        """
        key, runs = await self._find_task(call, message.task_id)
        if message.context_id not in ("", key.thread_id):
            raise InvalidParamsError(message="The task belongs to another context.")
        every = await self._conversations.runs(_thread(call, key.thread_id))
        asking = find_asking_run(every)
        if _has_answer(runs, question, asking):
            if not message.message_id:
                raise InvalidParamsError(
                    message="The task has got the same answer before. Give this one a messageId, "
                    "if it is for the next question."
                )
            return _fold(key, runs), None
        if asking is None or asking.run_id != key.run_id:
            raise UnsupportedOperationError(
                message="The task does not wait for a message. Without a taskId, one begins a "
                "new task in its context."
            )
        answers = decode_answers(message, asking.events)
        messages = fold_thread(run.events for run in every)
        run = _build_run(call, key, question, messages, resume=answers)
        return _fold(key, runs), run

    async def _find_task(self, call: Call, task_id: str) -> tuple[TaskKey, Sequence[StoredRun]]:
        """Return the runs of the caller's task. Raises `TaskNotFoundError`."""
        key = parse_task_id(task_id)
        if key is None:
            raise TaskNotFoundError
        check_thread_id("taskId", key.thread_id)
        every = await self._conversations.runs(_thread(call, key.thread_id))
        runs = [run for run in every if run.run_id == key.run_id and run.agent == call.agent]
        if not runs:
            raise TaskNotFoundError
        return key, runs

    async def _fold_thread(self, call: Call, thread_id: str) -> Sequence[TaskLog]:
        """Return the tasks of an agent in a thread, the oldest first."""
        check_thread_id("contextId", thread_id)
        by_run: dict[str, list[StoredRun]] = {}
        for run in await self._conversations.runs(_thread(call, thread_id)):
            if run.agent == call.agent and _is_task_run(run.run_id):
                by_run.setdefault(run.run_id, []).append(run)
        return [_fold(TaskKey(thread_id, id), runs) for id, runs in by_run.items()]


def _read_offset(token: str) -> int:
    """Return the start of a page of tasks. Raises `InvalidParamsError` if the token is invalid."""
    if not token:
        return 0
    if not (token.isascii() and token.isdecimal() and len(token) < 10):
        raise InvalidParamsError(message="The pageToken is none that a list of tasks has given.")
    return int(token)


def _get_call(context: ServerCallContext) -> Call:
    return context.state[CALL]


def _thread(call: Call, thread_id: str) -> ThreadKey:
    return ThreadKey.of(call.caller.user, thread_id)


def _is_task_run(run_id: str) -> bool:
    """Return whether a run's identifier is that of a task, rather than one of a page."""
    return len(run_id) == 32 and all(char in "0123456789abcdef" for char in run_id)


def _describe(call: Call, message: Message) -> _Question:
    content = Message(parts=message.parts).SerializeToString(deterministic=True)
    id = message.message_id or ("" if message.task_id else uuid4().hex)
    return call.agent, id, message.task_id, sha256(content).hexdigest()


def _build_context_id(call: Call, message: Message, question: _Question) -> str:
    """Return the new context of a message without one; a repeated message gets the same one.

    Messages that two anonymous clients may both send get a new context each time.
    """
    if len(message.message_id) < _UNIQUE_LENGTH:
        return str(uuid4())
    return derive_id(call.caller.user, *question)


def _has_answer(runs: Sequence[StoredRun], question: _Question, asking: StoredRun | None) -> bool:
    """Return whether a task was continued with an answer, even if its agent has asked again since.

    An answer that the agent refused does not count: the interrupt is still open.
    """
    log_id = build_log_id(*question)
    closed = [run.log_id for run in runs]
    if asking is not None and asking.log_id in closed:
        closed = closed[: closed.index(asking.log_id) + 1]
    return any(asks_same(id, log_id) for id in closed)


def _build_run(
    call: Call,
    key: TaskKey,
    question: _Question,
    messages: Sequence[OurMessage],
    *,
    resume: Sequence[Resume] = (),
    click: JsonObject | None = None,
) -> RunInput:
    caller = call.caller
    surfaces: JsonObject = {CATALOG_AVAILABLE: True} if call.has_a2ui else {}
    if click is not None:
        surfaces[CLICK] = click
    return RunInput(
        thread_id=key.thread_id,
        run_id=key.run_id,
        messages=messages,
        agent=call.target,
        properties={**caller.properties, **surfaces},
        headers=caller.headers,
        url=caller.url,
        operation="SendMessage",
        detached=True,
        user=caller.user,
        identity=caller.identity,
        persist=True,
        log_id=build_log_id(*question),
        parent=caller.parent,
        resume=resume,
    )


def _fold(key: TaskKey, runs: Sequence[StoredRun]) -> TaskLog:
    """Return the task of a sequence of runs."""
    log = TaskLog(key.task_id, key.thread_id)
    for run in runs:
        log.fold(run.events, run.began_at)
    return log


async def _replay(run: StoredRun) -> Log:
    """Yield all stored events of a run at once."""
    yield Batch("", tuple(run.events))


def _feed(log: TaskLog, events: Iterable[Event]) -> None:
    for event in events:
        for _ in log.feed(event):
            pass


async def _follow(log: TaskLog, events: Log, *, catch_up: bool) -> AsyncGenerator[A2aEvent]:
    """Yield the task at its start, then its updates.

    With catch-up, all events so far are combined in the first task. Without it, a late reader still
    gets each update.
    """
    is_first = True
    async with aclosing(events) as batches:
        async for batch in batches:
            rest = batch.events
            if is_first:
                head, rest = (rest, ()) if catch_up else (rest[:1], rest[1:])
                _feed(log, head)
                yield log.build_task()
                is_first = False
            for event in rest:
                for update in log.feed(event):
                    yield update
