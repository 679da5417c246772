"""Sends a message to a remote agent, and follows its task to the end across broken connections."""

import asyncio
import logging
from collections.abc import AsyncIterator

from a2a.client import Client, ClientCallContext
from a2a.types import (
    GetTaskRequest,
    ListTasksRequest,
    SendMessageRequest,
    StreamResponse,
    TaskState,
)
from a2a.utils.errors import (
    A2AError,
    InvalidParamsError,
    InvalidRequestError,
    TaskNotFoundError,
    UnsupportedOperationError,
)

from copilot_runtime.api.events import Events
from copilot_runtime.base.errors import IncompleteStream, NetworkError, RunStalled
from copilot_runtime.extensions.a2a.client.card import AnswerTooLarge
from copilot_runtime.extensions.a2a.client.translate import Translator

logger = logging.getLogger(__name__)

_MOST_FAILURES = 5
"""Maximum number of consecutive failures while polling a task."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 5.0
"""Delays between two polls, in seconds."""

_STALE_TASK = (
    TaskNotFoundError,
    InvalidParamsError,
    InvalidRequestError,
    UnsupportedOperationError,
)
"""Errors of an agent for a task that no longer waits."""


class TaskExchange:
    """One message and the resulting task. The package's exceptions are not converted."""

    def __init__(self, client: Client, call: ClientCallContext, translator: Translator) -> None:
        self._client = client
        self._call = call
        self._translator = translator

    async def run(self, request: SendMessageRequest) -> Events:
        """Send the message and yield events until the agent has answered.

        If the stream breaks off, the task is polled. If the agent no longer knows the task, the
        message starts a new one. Raises `IncompleteStream` if the answer has no end.
        """
        translator = self._translator
        try:
            async for response in self._send(request):
                for event in translator.feed(response):
                    yield event
                if translator.is_answered:
                    return
        except NetworkError as error:
            is_final = isinstance(error, RunStalled | AnswerTooLarge)
            if is_final or not translator.is_resumable:
                raise
            logger.warning("A stream of an agent broke off; its task is asked for: %s", error.hint)
        while not translator.is_answered:
            if not translator.is_resumable:
                raise IncompleteStream(
                    f"The answer of the agent {translator.agent!r} has no end.",
                    hint="Its stream ended before a message, and before a task that has ended.",
                )
            async for response in self._poll(translator.task_id):
                for event in translator.feed(response):
                    yield event

    async def _send(self, request: SendMessageRequest) -> AsyncIterator[StreamResponse]:
        try:
            async for response in self._client.send_message(request, context=self._call):
                yield response
            return
        except _STALE_TASK as error:
            if not request.message.task_id or self._translator.has_begun:
                raise
            logger.info("A task of an agent has ended meanwhile: %s", error)
        request.message.task_id = ""
        async for response in self._client.send_message(request, context=self._call):
            yield response

    async def _poll(self, task_id: str) -> AsyncIterator[StreamResponse]:
        """Poll the task with increasing delays."""
        pause, failures = _FIRST_PAUSE, 0
        while not self._translator.is_answered:
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE)
            try:
                task = await self._client.get_task(GetTaskRequest(id=task_id), context=self._call)
            except NetworkError as error:
                if isinstance(error, AnswerTooLarge):
                    raise
                failures += 1
                if failures == _MOST_FAILURES:
                    raise
                continue
            failures = 0
            yield StreamResponse(task=task)


async def find_waiting_task(client: Client, call: ClientCallContext, context_id: str) -> str:
    """Return the identifier of the conversation's task that waits for input, or an empty string.

    Agents before version 1.0, and some others, do not support this query.
    """
    request = ListTasksRequest(
        context_id=context_id, status=TaskState.TASK_STATE_INPUT_REQUIRED, page_size=1
    )
    try:
        found = await client.list_tasks(request, context=call)
    except (A2AError, NotImplementedError) as error:
        logger.debug("An agent does not list its tasks: %s", error)
        return ""
    return found.tasks[0].id if found.tasks else ""


def is_known(error: A2AError) -> bool:
    """Return whether an error was sent by the agent, and is no failure to read its response."""
    is_of_agent = "client" not in type(error).__module__
    return is_of_agent or str(error).startswith("JSON-RPC Error")  # with a code of its own
