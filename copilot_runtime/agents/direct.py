"""Answer with one adapter and the actions at hand: CopilotKit without an agent."""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace

from copilot_runtime.actions.sources import select_actions
from copilot_runtime.agents.context_message import told
from copilot_runtime.agents.shared_state import SharedState, shared_in
from copilot_runtime.agents.tool_loop import find_handoff_resumes, hand_off
from copilot_runtime.agents.turn import Turn
from copilot_runtime.errors import LimitExceeded
from copilot_runtime.interfaces import (
    Action,
    Adapter,
    ChatRequest,
    Events,
    Resume,
    RunInput,
)
from copilot_runtime.messages import Message
from copilot_runtime.transcript import messages_of


class DirectAgent:
    """Ask the model, run the server actions it calls, and ask again until it calls none.

    A call of a browser action ends the run: the browser acts and sends the result with its
    next request. With `follow_up == "client"` every run is one turn of the model, because
    CopilotKit v1 clients ask again themselves. They also write the context of the application
    into a message of theirs, which we do for all others. With `shared_state`, the model may read
    and change the state that such a client shares. An agent that the model calls takes over.
    """

    def __init__(
        self,
        adapter: Adapter,
        *,
        max_turns: int = 8,
        action_timeout: float = 60.0,
        shared_state: bool = True,
    ) -> None:
        self.adapter = adapter
        self.max_turns = max_turns
        self.action_timeout = action_timeout
        self.shared_state = shared_state

    def check(self, run: RunInput) -> None:
        """Raise what can be known to be wrong before the run starts."""
        if check := getattr(self.adapter, "check", None):
            check(run)

    def run(self, run: RunInput) -> Events:
        server = [action for action in run.actions if not action.in_browser]
        browser = [action for action in run.actions if action.in_browser]
        if run.is_v1:
            request = _request(run, run.messages, server, browser)
            return self._turn(request, Turn(run, server, self.action_timeout))
        if answered := find_handoff_resumes(run):
            return self._resumed(run, answered)
        shared = shared_in(run) if self.shared_state else None
        if shared is not None:
            server += shared.actions()
        context = told(run.context, shared.value if shared else None, run.run_id)
        request = _request(run, [*context, *run.messages], server, browser)
        return self._turns(request, run, server, shared)

    async def _resumed(
        self, run: RunInput, answered: Sequence[tuple[Action, Sequence[Resume]]]
    ) -> Events:
        """Let the agents go on that had taken over and asked a person."""
        for action, resume in answered:
            handing = hand_off(run, action, self.max_turns, self.action_timeout, resume)
            async with aclosing(handing) as events:
                async for event in events:
                    yield event

    async def _turns(
        self,
        request: ChatRequest,
        run: RunInput,
        server: Sequence[Action],
        shared: SharedState | None,
    ) -> Events:
        for _ in range(self.max_turns):
            turn = Turn(run, server, self.action_timeout, shared)
            async with aclosing(self._turn(request, turn)) as events:
                async for event in events:
                    yield event
            if turn.done:
                return
            request = _next(request, turn)
        raise LimitExceeded(
            f"The model called actions {self.max_turns} times in a row without an answer.",
            hint="Raise max_turns in the settings, or look at what the actions return.",
        )

    async def _turn(self, request: ChatRequest, turn: Turn) -> Events:
        """One answer of the model. Results come in call order, each as soon as it may."""
        try:
            async with aclosing(self.adapter.stream(request)) as events:
                async for event in events:
                    if turn.calls:
                        while (ready := turn.next_if_done()) is not None:
                            for result in turn.results_of(ready):
                                yield result
                    turn.watch(event)
                    yield event
            while turn.waiting:
                for result in turn.results_of(await turn.next()):
                    yield result
        finally:
            turn.cancel()
        for action in turn.taking_over:
            handing = hand_off(turn.run, action, self.max_turns, self.action_timeout)
            async with aclosing(handing) as events:
                async for event in events:
                    yield event


def _request(
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


def _next(request: ChatRequest, turn: Turn) -> ChatRequest:
    """Return the request of the next turn: the same, and what this turn added to it."""
    messages: list[Message] = [*request.messages, *messages_of(turn.events)]
    # a model forced to call an action may answer freely once it has done so
    parameters = replace(request.parameters, tool_choice=None, tool_choice_name=None)
    return replace(request, messages=messages, parameters=parameters)
