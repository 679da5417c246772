"""Answers with one adapter and actions: CopilotKit without an agent."""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace

from copilot_runtime.actions.sources import select_actions
from copilot_runtime.agents.context_message import build_context_message
from copilot_runtime.agents.shared_state import SharedState, find_shared_state
from copilot_runtime.agents.tool_loop import find_handoff_resumes, finish_turn, hand_off
from copilot_runtime.agents.turn import Turn
from copilot_runtime.duck_typing import complete
from copilot_runtime.errors import LimitExceeded
from copilot_runtime.interfaces import (
    Action,
    Adapter,
    Agent,
    ChatRequest,
    Events,
    RunInput,
    SupportsStream,
)
from copilot_runtime.messages import Message
from copilot_runtime.transcript import fold_messages


class DirectAgent(Agent):
    """Requests the model, runs the server actions it calls, and repeats until it calls none.

    A call of a browser action ends the run: the browser acts and sends the result with its next
    request. A run of a CopilotKit v1 client is one turn of the model, because the client sends the
    results itself; it also puts the context of the application into a message, which is done here
    for all others. With `shared_state`, the model may read and change the state that an AG-UI
    client shares. An agent that the model calls takes over. There are at most `max_turns` requests
    in a run; an action may take `action_timeout` seconds.
    """

    def __init__(
        self,
        adapter: SupportsStream,
        *,
        max_turns: int = 8,
        action_timeout: float = 60.0,
        shared_state: bool = True,
    ) -> None:
        self.adapter = complete(Adapter, adapter)
        self.max_turns = max_turns
        self.action_timeout = action_timeout
        self.shared_state = shared_state

    def check(self, run: RunInput) -> None:
        """Raise the errors of the adapter that need no request."""
        self.adapter.check(run)

    def run(self, run: RunInput) -> Events:
        """Yield the events of the model and the results of its calls, in call order.

        Cancelled, or closed early, the adapter's stream is closed and the actions are cancelled.
        Raises `LimitExceeded` after `max_turns`, and what the adapter raises.
        """
        server = [action for action in run.actions if not action.in_browser]
        browser = [action for action in run.actions if action.in_browser]
        if run.is_v1:
            request = _build_request(run, run.messages, server, browser)
            return self._run_turn(request, Turn(run, server, self.action_timeout))
        if resumes := find_handoff_resumes(run):
            return hand_off(run, resumes, self.max_turns, self.action_timeout)
        shared = find_shared_state(run) if self.shared_state else None
        if shared is not None:
            server += shared.actions()
        context = build_context_message(run.context, shared.value if shared else None, run.run_id)
        request = _build_request(run, [*context, *run.messages], server, browser)
        return self._run_turns(request, run, server, shared)

    async def _run_turns(
        self,
        request: ChatRequest,
        run: RunInput,
        server: Sequence[Action],
        shared: SharedState | None,
    ) -> Events:
        for _ in range(self.max_turns):
            turn = Turn(run, server, self.action_timeout, shared)
            async with aclosing(self._run_turn(request, turn)) as events:
                async for event in events:
                    yield event
            if turn.is_done:
                return
            request = _extend_request(request, turn)
        raise LimitExceeded(
            f"The model called actions {self.max_turns} times in a row without an answer.",
            hint="Raise max_turns in the settings, or look at what the actions return.",
        )

    async def _run_turn(self, request: ChatRequest, turn: Turn) -> Events:
        """Yield one answer of the model, and results in call order, each as soon as possible."""
        try:
            async with aclosing(self.adapter.stream(request)) as events:
                async for event in events:
                    if turn.calls:
                        while (ready := turn.pop_ready()) is not None:
                            for result in turn.build_results(ready):
                                yield result
                    turn.feed(event)
                    yield event
            if turn.calls:
                async with aclosing(finish_turn(turn, self.max_turns)) as events:
                    async for event in events:
                        yield event
        finally:
            turn.cancel()


def _build_request(
    run: RunInput,
    messages: Sequence[Message],
    server: Sequence[Action],
    browser: Sequence[Action],
) -> ChatRequest:
    return ChatRequest(
        messages=messages,
        actions=select_actions(server, browser, for_agent=False),
        parameters=run.parameters,
        thread_id=run.thread_id,
        run_id=run.run_id,
        agent=run.agent,
        user=run.user,
        extensions=run.extensions,
    )


def _extend_request(request: ChatRequest, turn: Turn) -> ChatRequest:
    """Return the request of the next turn: with the messages of this turn."""
    messages: list[Message] = [*request.messages, *fold_messages(turn.events)]
    # a model forced to call an action may answer freely once it has done so
    parameters = replace(request.parameters, tool_choice=None, tool_choice_name=None)
    return replace(request, messages=messages, parameters=parameters)
