"""The agent for plain chats: one adapter with actions, CopilotKit without an agent."""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace

from copilot_runtime.actions.sources import select_actions
from copilot_runtime.adapters.budget import stream_within
from copilot_runtime.adapters.chat_span import end_chat, start_chat
from copilot_runtime.adapters.context_window import WindowedAdapter
from copilot_runtime.adapters.errors import redact_error
from copilot_runtime.adapters.parameters import (
    ParametersLike,
    merge_parameters,
    parse_parameters,
)
from copilot_runtime.adapters.pricing import finish_loading
from copilot_runtime.agents.instructions import (
    InstructedAgent,
    Instructions,
    build_sources,
    build_system_message,
    check_instructions,
    join_passages,
    read_files,
    resolve_instructions,
    retrieve_passages,
    select_citations,
)
from copilot_runtime.agents.shared_state import STATE_ACTIONS, SharedState, find_shared_state
from copilot_runtime.agents.tool_loop import find_handoff_resumes, finish_turn, hand_off
from copilot_runtime.agents.turn import Turn
from copilot_runtime.api.action import Action
from copilot_runtime.api.adapter import (
    Adapter,
    ChatRequest,
    MessageWindow,
    SupportsStream,
    new_chat_request,
)
from copilot_runtime.api.agent import TOOL_CAPABILITIES, Agent
from copilot_runtime.api.argument_checks import complete
from copilot_runtime.api.events import ActionExecutionEnd, Events
from copilot_runtime.api.messages import Message, new_id
from copilot_runtime.api.retrieval import FileReader, FileStore, PreparedMessages, Retriever
from copilot_runtime.api.run_input import PAGE_INSTRUCTIONS, ContextItem, RunInput
from copilot_runtime.api.transcript import fold_messages
from copilot_runtime.base.dataclass_copy import copy_with
from copilot_runtime.base.errors import CopilotError, LimitExceeded, ToolsRefused
from copilot_runtime.telemetry.span import NO_SPAN

_CAPABILITIES = {**TOOL_CAPABILITIES, "humanInTheLoop": {"supported": True}}
_STATE_CAPABILITIES = {**_CAPABILITIES, "state": {"snapshots": True, "deltas": True}}


class DirectAgent(InstructedAgent):
    """Sends requests to the model and runs the server actions it calls, until it calls none.

    A call of a browser action ends the run: the browser acts and sends the result with its next
    request. A run of a CopilotKit v1 client is one turn of the model, because the client sends the
    results itself; it also puts the context of the application into a message, which is done here
    for all others. With `shared_state`, the model may read and change the state that an AG-UI
    client shares. An agent that the model calls takes over. There are at most `max_turns` requests
    in a run; an action may take `action_timeout` seconds.

    `instructions` are the system prompt, before that of a frontend: a text, or a function of the
    `RunInput`, called once in a run. They are neither stored in threads nor sent to clients.
    `parameters` are the defaults for parameters that a client does not set. Raises
    `ConfigurationFailed` if either is invalid.

    A `retriever` finds passages for each question. The model gets them with the instructions, and
    an AG-UI client gets those that the answer cites, as an `Activity` of the type `sources`, after
    it. With `files`, files attached to questions are ingested first, and searched as well. A
    `window` trims each request.
    """

    is_replayable = True
    executes_actions = True

    def __init__(
        self,
        adapter: SupportsStream,
        *,
        instructions: Instructions | None = None,
        parameters: ParametersLike | None = None,
        max_turns: int = 8,
        action_timeout: float = 60.0,
        shared_state: bool = True,
        retriever: Retriever | None = None,
        files: FileReader | None = None,
        window: MessageWindow | None = None,
    ) -> None:
        check_instructions(instructions)
        self.adapter = complete(Adapter, adapter)
        if window is not None:
            self.adapter = WindowedAdapter(self.adapter, window)
        self.instructions = instructions
        self.parameters = parse_parameters(parameters)
        self.max_turns = max_turns
        self.action_timeout = action_timeout
        self.shared_state = shared_state
        self.retriever = retriever
        self.files = files
        self._models_without_tools: set[str | None] = set()
        self.capabilities = _STATE_CAPABILITIES if shared_state else _CAPABILITIES

    def check(self, run: RunInput) -> None:
        """Raise the errors of the adapter that need no request."""
        self.adapter.check(run)

    def find_failing_checks(self) -> Sequence[str]:
        """Return the failing checks of the adapter."""
        return self.adapter.find_failing_checks()

    def run(self, run: RunInput) -> Events:
        """Yield the events of the model and the results of its calls, in call order.

        On cancellation or early close, the adapter's stream is closed and the actions are
        cancelled. Raises `LimitExceeded` after `max_turns`, and the errors of the adapter and of
        `resolve_instructions`.
        """
        if run.is_v1:
            turn = Turn(run, _list_server_actions(run), self.action_timeout)
            return self._run_turn(turn)
        if resumes := find_handoff_resumes(run):
            return hand_off(run, resumes, self.max_turns, self.action_timeout)
        return self._run_turns(run, find_shared_state(run) if self.shared_state else None)

    async def _run_turns(self, run: RunInput, shared: SharedState | None) -> Events:
        reading: PreparedMessages | None = None
        if self.files is not None:
            async with aclosing(self.files.read_files(run)) as steps:
                async for step in steps:
                    if isinstance(step, PreparedMessages):
                        reading = step
                    else:
                        yield step
        server = _list_server_actions(run, shared)
        if shared is not None and run.parameters.model in self._models_without_tools:
            shared.is_offered = False
        request = await self._build_request(run, server, shared, reading)
        turns, answer = 0, ""
        while turns < self.max_turns:
            turn = Turn(run, server, self.action_timeout, shared)
            try:
                async with aclosing(self._run_turn(turn, request)) as events:
                    async for event in events:
                        yield event
            except ToolsRefused:
                if shared is None or turn.first_event_time or not _has_state_actions_only(request):
                    raise
                self._models_without_tools.add(run.parameters.model)
                shared.is_offered = False
                request = await self._build_request(run, server, shared, reading)
                continue
            answer += turn.text
            if turn.is_done:
                if citations := select_citations(request.passages, answer):
                    yield build_sources(run, citations)
                return
            request = _extend_request(request, turn)
            turns += 1
        raise LimitExceeded(
            f"The model called actions {self.max_turns} times in a row without an answer, the most "
            "by `max_turns`.",
            hint="Raise max_turns in the settings, or look at what the actions return.",
        )

    async def _run_turn(self, turn: Turn, request: ChatRequest | None = None) -> Events:
        """Yield one answer of the model, and results in call order, each as soon as possible.

        Without a `request`, it builds the first one of a run, for clients without file progress.
        """
        if request is None:
            reading = await read_files(self.files, turn.run)
            server = _list_server_actions(turn.run)
            request = await self._build_request(turn.run, server, reading=reading)
        if turn.run.span.is_recording:
            request = start_chat(self.adapter, request, turn.run.span)
        try:
            stream = stream_within(turn.run.budget, self.adapter, request)
            async with aclosing(stream) as events:
                async for event in events:
                    if turn.calls:
                        while (ready := turn.pop_ready()) is not None:
                            for result in turn.build_results(ready):
                                yield result
                    if turn.feed(event):
                        yield event
                        if isinstance(event, ActionExecutionEnd):
                            turn.start_call(event.call_id)
            turn.refuse_open_calls()
            if request.span.is_recording:
                await finish_loading(request.span)
                _end_span(request, turn)
            if turn.calls:
                async with aclosing(finish_turn(turn, self.max_turns)) as events:
                    async for event in events:
                        yield event
                turn.check_refusals(request.messages)
        except Exception as error:
            if isinstance(error, CopilotError):
                redact_error(error, request.instructions)
            _end_span(request, turn, error)
            raise
        finally:
            turn.cancel()
            if not request.span.is_ended:  # the reader closed the stream
                _end_span(request, turn, is_complete=False)

    async def _build_request(
        self,
        run: RunInput,
        server: Sequence[Action],
        shared: SharedState | None = None,
        reading: PreparedMessages | None = None,
    ) -> ChatRequest:
        """Return the first request of a run. Raises the errors of `resolve_instructions`."""
        instructions = await resolve_instructions(self.instructions, run)
        passages = await retrieve_passages(self.retriever, run)
        if reading is not None:
            passages = join_passages(reading.passages, passages)
        system = build_system_message(
            run.run_id,
            instructions=instructions,
            context=_select_context(run),
            state=shared.value if shared else None,
            is_editable=shared is None or shared.is_offered,
            passages=passages,
        )
        browser = [action for action in run.actions if action.in_browser]
        if shared is not None and not shared.is_offered:
            server = [action for action in server if action.name not in STATE_ACTIONS]
        return new_chat_request(
            messages=[*system, *(reading.messages if reading else run.messages)],
            instructions=instructions,
            actions=select_actions(server, browser, for_agent=False),
            parameters=merge_parameters(self.parameters, run.parameters),
            thread_id=run.thread_id,
            run_id=run.run_id,
            agent=run.agent,
            user=run.user,
            extensions=run.extensions,
            # a client of v1 sends all messages, so that it is enough if those have other ids
            message_id="" if run.is_v1 else new_id(),
            passages=passages,
            has_knowledge=self.retriever is not None,
        )


def _end_span(
    request: ChatRequest,
    turn: Turn,
    error: BaseException | None = None,
    *,
    is_complete: bool = True,
) -> None:
    """End the span of a request to the model, and add its tokens to those of the run."""
    end_chat(
        request,
        turn.run.span,
        turn.events,
        turn.usage,
        turn.first_event_time,
        error,
        is_complete=is_complete,
    )


def _select_context(run: RunInput) -> Sequence[ContextItem]:
    """Return the context; for a v1 frontend, only items that its system message lacks."""
    if not run.is_v1 or run.page_instructions == "drop":
        return run.context
    return [item for item in run.context if item.description == PAGE_INSTRUCTIONS]


def _list_server_actions(run: RunInput, shared: SharedState | None = None) -> Sequence[Action]:
    server = [action for action in run.actions if not action.in_browser]
    return [*server, *shared.actions()] if shared else server


def _has_state_actions_only(request: ChatRequest) -> bool:
    return bool(request.actions) and all(one.name in STATE_ACTIONS for one in request.actions)


def _extend_request(request: ChatRequest, turn: Turn) -> ChatRequest:
    """Return the request of the next turn, extended by the messages of this turn."""
    messages: list[Message] = [*request.messages, *fold_messages(turn.events)]
    parameters = request.parameters
    if not turn.refused:
        # a model forced to call an action may answer freely once it has done so
        parameters = copy_with(parameters, tool_choice=None, tool_choice_name=None)
    return copy_with(
        request, messages=messages, parameters=parameters, message_id=new_id(), span=NO_SPAN
    )


class FileStoringAgent(Agent):
    """Stores the files of a run before the wrapped agent runs, so that its tools can search them.

    A CopilotKit v1 client cannot show progress, so it gets no progress events.
    """

    def __init__(self, agent: Agent, files: FileStore) -> None:
        self.agent = agent
        self.executes_actions = agent.executes_actions
        self.files = files

    def check(self, run: RunInput) -> None:
        """Raise the errors of the agent that need no request."""
        self.agent.check(run)

    def run(self, run: RunInput) -> Events:
        """Yield the progress of the files, if there are any, and the events of the agent."""
        return self._store_and_run(run) if self.files.has_files(run) else self.agent.run(run)

    async def _store_and_run(self, run: RunInput) -> Events:
        async with aclosing(self.files.store_files(run)) as steps:
            async for step in steps:
                if isinstance(step, PreparedMessages):
                    run = replace(run, messages=step.messages)
                elif not run.is_v1:
                    yield step
        async with aclosing(self.agent.run(run)) as events:
            async for event in events:
                yield event


def stores_files(agent: Agent) -> bool:
    """Return whether an agent ingests its files itself."""
    return isinstance(agent, DirectAgent) and agent.files is not None
