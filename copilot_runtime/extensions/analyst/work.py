"""The tool calls of a question: results, pending approvals, and the merged stream of events."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from copilot_runtime.api.action import Action, ActionContext
from copilot_runtime.api.events import (
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    Event,
    Events,
)
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.concurrency import retrieve_exception
from copilot_runtime.extensions.analyst.results import ApprovalRequest, ToolResult
from copilot_runtime.extensions.analyst.thoughts import ThoughtStream
from copilot_runtime.extensions.analyst.view import View


class Work:
    """Tracks the tool calls of a question.

    A call that requires approval waits. Once all other calls have ended, the answer ends with an
    interrupt for each waiting call.
    """

    def __init__(self, run: RunInput, view: View) -> None:
        self.run = run
        self.view = view
        self.bell = Bell()
        self.thoughts = ThoughtStream(on_change=self.bell.ring)
        self.approvals: dict[str, ApprovalRequest] = {}
        """The required approvals, by call id."""
        self.has_calls = False
        self._names: dict[str, str] = {}
        self._open: set[str] = set()
        self._outputs: dict[str, str] = {}
        self._is_streaming = False
        self._results: list[ToolResult] = []
        self._shown = 0

    def record_turn(self, is_streaming: bool) -> None:
        """Record whether the model is streaming a response, in which it may add calls."""
        self._is_streaming = is_streaming
        self.bell.ring()

    @property
    def must_ask(self) -> bool:
        """`True` if only calls that wait for an approval are left."""
        settled = self._outputs.keys() | self.approvals.keys()
        return bool(self.approvals) and not self._is_streaming and self._open <= settled

    async def record_result(self, result: ToolResult, context: ActionContext) -> None:
        """Record a tool result.

        A call that requires an approval waits here until it is cancelled.
        """
        if result.approval is not None:
            self.approvals[context.call_id] = result.approval
            self.bell.ring()
            await asyncio.get_running_loop().create_future()
        self._results.append(result)
        self.bell.ring()

    def watch_actions(self, actions: Sequence[Action]) -> Sequence[Action]:
        """Wrap actions so that their outputs are tracked."""
        return [*map(self._watch_action, actions)]

    def _watch_action(self, action: Action) -> Action:
        run = action.run
        assert run is not None

        async def call(arguments: Mapping[str, Any], context: ActionContext) -> Any:
            output = await run(arguments, context)
            self._outputs[context.call_id] = output if isinstance(output, str) else ""
            self.bell.ring()
            return output

        return replace(action, run=call)

    async def watch_events(self, events: Events, own: Sequence[str]) -> Events:
        """Yield the events of a loop whose tools have the names `own`."""
        async with aclosing(events):
            async for event in events:
                match event:
                    case ActionExecutionStart(call_id=id, name=name):
                        self.has_calls = True
                        self._names[id] = name
                    case ActionExecutionEnd(call_id=id) if self._names.get(id) in own:
                        self._open.add(id)
                    case ActionExecutionResult(call_id=id):
                        self._open.discard(id)
                        self.approvals.pop(id, None)
                    case _:
                        pass
                yield event

    def list_late_results(self) -> Sequence[Event]:
        """Return the results of finished calls that were blocked by a waiting call."""
        return [
            ActionExecutionResult(call_id=id, name=self._names[id], result=self._outputs[id])
            for id in sorted(self._open)
            if id in self._outputs
        ]

    def collect(self, *, as_text: bool = False) -> Sequence[Event]:
        """Return the events of new thoughts and results since the last call."""
        thoughts = self.thoughts.thoughts[self._shown :]
        self._shown += len(thoughts)
        results, self._results = self._results, []
        return [
            *self.view.show_thoughts(thoughts, as_text=as_text),
            *(event for result in results for event in self.view.show_result(result)),
        ]


_MOST_WAITING = 64
"""Maximum number of buffered events before the model and its tools are paused."""


class Bell:
    """Wakes the reader of a stream after new items or its end."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def ring(self) -> None:
        """Wake the reader."""
        self._event.set()

    async def wait(self) -> None:
        """Wait for the next ring; a ring since the last wait counts."""
        await self._event.wait()
        self._event.clear()


async def merge_events(
    events: Events,
    bell: Bell,
    collect: Callable[[], Sequence[Event]],
    has_ended: Callable[[], bool],
) -> AsyncGenerator[Event, None]:
    """Yield the events, merged with those that `collect` returns whenever the bell rings.

    Ends with the events, or as soon as `has_ended` returns `True`; the events are closed then.
    Their errors are raised.
    """
    waiting: deque[Event] = deque()
    room = asyncio.Event()

    async def read() -> None:
        try:
            async with aclosing(events):
                async for event in events:
                    waiting.append(event)
                    bell.ring()
                    if len(waiting) >= _MOST_WAITING:
                        room.clear()
                        await room.wait()
        finally:
            bell.ring()

    reader = asyncio.create_task(read(), name="analyst: read events")
    try:
        is_over = False
        while not is_over:
            await bell.wait()
            is_over = reader.done() or has_ended()
            while waiting:
                event = waiting.popleft()
                for other in collect():
                    yield other
                yield event
            room.set()
            for other in collect():
                yield other
        if reader.done():
            reader.result()
    finally:
        if not reader.done():
            reader.cancel()
            await asyncio.wait([reader])
        retrieve_exception(reader)
