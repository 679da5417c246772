"""One question under way: what its tools found, which calls wait for a person, what is shown."""

import asyncio
from collections.abc import Mapping, Sequence
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
from copilot_runtime.extensions.analyst.merge import Bell
from copilot_runtime.extensions.analyst.results import ApprovalRequest, ToolResult
from copilot_runtime.extensions.analyst.thoughts import ThoughtStream
from copilot_runtime.extensions.analyst.view import View


class Work:
    """Follows the calls of one question.

    A call that a person has to approve waits: once all others are over, the question ends with
    what is to be asked.
    """

    def __init__(self, run: RunInput, view: View) -> None:
        self.run = run
        self.view = view
        self.bell = Bell()
        self.thoughts = ThoughtStream(on_change=self.bell.ring)
        self.approvals: dict[str, ApprovalRequest] = {}
        """What a person is to be asked, by the ids of the calls."""
        self.has_calls = False
        self._names: dict[str, str] = {}
        self._open: set[str] = set()
        self._outputs: dict[str, str] = {}
        self._is_streaming = False
        self._results: list[ToolResult] = []
        self._shown = 0

    def note_turn(self, is_streaming: bool) -> None:
        """Take that the model begins to answer, or has ended: it may call more meanwhile."""
        self._is_streaming = is_streaming
        self.bell.ring()

    @property
    def must_ask(self) -> bool:
        """Whether nothing goes on any more but what waits for a person."""
        settled = self._outputs.keys() | self.approvals.keys()
        return bool(self.approvals) and not self._is_streaming and self._open <= settled

    async def note_result(self, result: ToolResult, context: ActionContext) -> None:
        """Take what a tool found. One that needs an approval waits here until it is cancelled."""
        if result.approval is not None:
            self.approvals[context.call_id] = result.approval
            self.bell.ring()
            await asyncio.get_running_loop().create_future()
        self._results.append(result)
        self.bell.ring()

    def watch_actions(self, actions: Sequence[Action]) -> Sequence[Action]:
        """Return actions whose calls are followed."""
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
        """Return the results of calls that are over, and stood behind one that waits."""
        return [
            ActionExecutionResult(call_id=id, name=self._names[id], result=self._outputs[id])
            for id in sorted(self._open)
            if id in self._outputs
        ]

    def collect(self, *, as_text: bool = False) -> Sequence[Event]:
        """Return the events of thoughts and results since the last time."""
        thoughts = self.thoughts.thoughts[self._shown :]
        self._shown += len(thoughts)
        results, self._results = self._results, []
        return [
            *self.view.show_thoughts(thoughts, as_text=as_text),
            *(event for result in results for event in self.view.show_result(result)),
        ]
