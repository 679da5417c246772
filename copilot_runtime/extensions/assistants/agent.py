"""Runs assistants, including hand-offs and sub-agents."""

import logging
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from copilot_runtime.agents.direct import DirectAgent
from copilot_runtime.agents.instructions import InstructedAgent
from copilot_runtime.agents.tool_loop import ended_by_length
from copilot_runtime.api.action import Action, ActionContext
from copilot_runtime.api.adapter import Adapter
from copilot_runtime.api.agent import TOOL_CAPABILITIES
from copilot_runtime.api.events import (
    Event,
    Events,
    Interrupt,
    RunFinished,
    TextMessageContent,
    TextMessageStart,
    Usage,
)
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    ImageMessage,
    Message,
    ResultMessage,
    TextMessage,
    new_id,
)
from copilot_runtime.api.retrieval import FileReader, Retriever
from copilot_runtime.api.run_input import CURRENT_RUN, Parameters, RunInput, RunSlot
from copilot_runtime.api.transcript import fold_messages
from copilot_runtime.base.errors import AgentNotFound, CopilotError, LimitExceeded, Misuse
from copilot_runtime.base.jsontext import join_pieces
from copilot_runtime.extensions.assistants.definition import AssistantDefinition
from copilot_runtime.extensions.assistants.delegation import (
    LIST_HANDOFFS,
    LIST_SUB_AGENTS,
    RUN_HANDOFF,
    RUN_SUB_AGENT,
    QuestionRetriever,
    allows,
    build_handoff,
    build_lists,
    build_sub_agents,
    follow_handoffs,
    list_sub_agents,
    list_successors,
    read_switch,
    show_sub_agents,
)
from copilot_runtime.extensions.assistants.folder import AssistantFolder
from copilot_runtime.extensions.assistants.limits import CallLimiter, build_budget
from copilot_runtime.extensions.assistants.template import render_template
from copilot_runtime.extensions.assistants.window import BudgetWindow
from copilot_runtime.extensions.knowledge.memory.window import find_rules
from copilot_runtime.telemetry.genai import start_agent_span
from copilot_runtime.telemetry.span import trace_block

_MAX_HANDOFFS = 8
"""Maximum number of hand-offs in one run."""

_MAX_DEPTH = 3
"""Maximum nesting of sub-agents."""

_DELEGATION = {RUN_HANDOFF, RUN_SUB_AGENT, LIST_HANDOFFS, LIST_SUB_AGENTS}

_GO_ON = "Go on exactly where your answer was cut off."

logger = logging.getLogger(__name__)


class _Scope(NamedTuple):
    """The shared state of the assistants of one run."""

    definitions: Mapping[str, AssistantDefinition]
    """The assistants at the start of the run: changed files take effect in the next run."""
    limiter: CallLimiter


class AssistantAgent(InstructedAgent):
    """An assistant of a folder, as an agent.

    A conversation that starts with it may continue with another one: the last hand-off in the
    conversation determines which one answers.

    Args:
        name: The assistant that conversations start with.
        folder: The folder of all assistants.
        adapter: Sends the model requests.
        parameters: Default model parameters, which the page and the assistant's file override.
        action_timeout: Timeout of a tool, in seconds.
        retriever: Retrieves passages for each question.
        files: Ingests files that are attached to questions.
        window_rules: How a budgeted context window is filled: a name of `RULES`.
    """

    executes_actions = True

    def __init__(
        self,
        name: str,
        folder: AssistantFolder,
        adapter: Adapter,
        *,
        parameters: Parameters | None = None,
        action_timeout: float = 60.0,
        retriever: Retriever | None = None,
        files: FileReader | None = None,
        window_rules: str = "newest",
    ) -> None:
        find_rules(window_rules)
        self.name = name
        self.folder = folder
        self.adapter = adapter
        self.parameters = parameters
        self.action_timeout = action_timeout
        self.retriever = retriever
        self.files = files
        self.window_rules = window_rules
        self._body: str | None = None
        """Instructions in place of those in the file of `name`."""
        self._missing: set[tuple[str, str]] = set()
        """Missing tools that were already logged, by assistant and tool."""

    @property
    def description(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]  # files change
        """The assistant's purpose."""
        definition = self.folder.definitions.get(self.name)
        return "" if definition is None else definition.description or definition.summary

    @property
    def profile(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]  # files change
        """The text that describes the assistant for the selection of agents."""
        definition = self.folder.definitions.get(self.name)
        return "" if definition is None else definition.profile

    @property
    def instructions(self) -> str:
        """The assistant's instructions: the template of its file, unless others are set."""
        definition = self.folder.definitions.get(self.name)
        return self._body if self._body is not None else definition.body if definition else ""

    @instructions.setter
    def instructions(self, template: str) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]  # files change
        self._body = template

    @property
    def is_replayable(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]  # files change
        """True if an interrupted run can be resumed from the conversation alone.

        The tool calls of sub-agents are not part of a conversation, so all sub-agents that can be
        reached from this assistant, also after hand-offs, count.
        """
        definitions = self.folder.definitions
        definition = definitions.get(self.name)
        if definition is not None and definition.idempotent:
            return True
        team = list_successors(self.name, definitions)
        return not any(list_sub_agents(one, definitions) for one in team)

    @property
    def capabilities(self) -> Mapping[str, Any]:  # pyright: ignore[reportIncompatibleVariableOverride]  # files change
        """Whether it delegates or hands off, not to whom: policies may hide those assistants."""
        definitions = self.folder.definitions
        definition = definitions.get(self.name)
        if definition is None:
            return TOOL_CAPABILITIES
        delegates = bool(list_sub_agents(definition, definitions))
        hands_off = bool(definition.handoffs)
        return {
            **TOOL_CAPABILITIES,
            "humanInTheLoop": {"supported": True},
            "multiAgent": {
                "supported": delegates or hands_off,
                "delegation": delegates,
                "handoffs": hands_off,
            },
        }

    def check(self, run: RunInput) -> None:
        """Raise the adapter's errors that need no request, such as a missing key."""
        self.adapter.check(run)

    async def run(self, run: RunInput) -> Events:
        """Yield the answer of the conversation's assistant and, after hand-offs, of its successors.

        Raises `Misuse` without a user message, `AgentNotFound`, and the errors of `DirectAgent`.
        """
        if not any(_asks(message) for message in run.messages):
            raise Misuse("No user message found in request")
        await self.folder.refresh()
        definitions = await self.folder.select(run.user)
        definition = _find(definitions, self.name)
        budget = build_budget(definition, run.budget)
        slot = CURRENT_RUN.get(None) or RunSlot(run)
        slot.traces_tools = True  # its calls have their own spans
        before, slot.budget = slot.budget, budget
        limiter = CallLimiter(budget, definition.max_parallel, self.action_timeout)
        run, scope = replace(run, budget=budget), _Scope(definitions, limiter)
        try:
            async with aclosing(self._converse(run, self.name, scope)) as events:
                async for event in events:
                    yield event
        finally:
            slot.budget = before

    async def _converse(self, run: RunInput, name: str, scope: _Scope) -> Events:
        """Answer a conversation that started with `name`, until no assistant hands off."""
        handoffs = continuations = 0
        while True:
            current, messages = follow_handoffs(run.messages, name, scope.definitions)
            definition = _find(scope.definitions, current)
            turn: list[Event] = []
            answer = self._answer(replace(run, messages=messages), definition, scope)
            async with aclosing(answer) as events:
                async for event in events:
                    turn.append(event)
                    if not isinstance(event, RunFinished):
                        yield event
            new = fold_messages(turn)
            if run.is_v1 or _waits_for_somebody(turn, new):
                return  # a client of v1 sends the result of the hand-off itself
            if any(isinstance(one, ResultMessage) and read_switch(one) for one in new):
                handoffs += 1
                if handoffs > _MAX_HANDOFFS:
                    raise LimitExceeded(
                        f"The assistants handed over {handoffs} times in one run.",
                        hint="Look at their prompts: they send the conversation in a circle.",
                    )
            elif ended_by_length(turn) and continuations < definition.continuations:
                continuations += 1
                new.append(TextMessage(id=new_id(), role="user", content=_GO_ON))
            else:
                return
            # a forced tool was called already, or does not apply to the next assistant
            parameters = replace(run.parameters, tool_choice=None, tool_choice_name=None)
            run = replace(run, messages=[*run.messages, *new], parameters=parameters, resume=())

    async def _answer(
        self, run: RunInput, definition: AssistantDefinition, scope: _Scope
    ) -> Events:
        """Yield the answer of one assistant, with the start and end of each sub-agent."""
        assert run.budget is not None
        depth = run.budget.depth
        sub_agents = {} if depth >= _MAX_DEPTH else list_sub_agents(definition, scope.definitions)
        usage: dict[str, list[Usage]] = {}

        async def ask(other: AssistantDefinition, prompt: str, context: ActionContext) -> str:
            counts = usage.setdefault(context.call_id, [])
            return await self._ask(run, other, prompt, context, counts, scope)

        limiter = scope.limiter
        delegation = [
            *build_handoff(definition, run.thread_id),
            *build_sub_agents(sub_agents, ask, self.action_timeout),
            *build_lists(definition, sub_agents),
        ]
        actions = [
            *map(limiter.limit, _select_actions(run.actions, definition)),
            *(limiter.limit(action, takes_slot=False) for action in delegation),
        ]
        self._report_missing(definition, actions)
        agent = self._build_agent(definition, actions, scope, depth)
        events = agent.run(replace(run, actions=actions))
        if sub_agents:
            events = show_sub_agents(events, sub_agents, usage)
        async with aclosing(events):
            async for event in events:
                yield event

    async def _ask(
        self,
        run: RunInput,
        definition: AssistantDefinition,
        prompt: str,
        context: ActionContext,
        counts: list[Usage],
        scope: _Scope,
    ) -> str:
        """Return the answer of a sub-agent without the conversation; `counts` gets its usage."""
        span = start_agent_span(context.span, definition.name, description=definition.description)
        sub_run = replace(
            run,
            agent=definition.name,
            run_id=new_id(),
            log_id="",
            messages=[TextMessage(id=new_id(), role="user", content=prompt)],
            query="",
            actions=[one for one in run.actions if one.run is not None and not one.is_drawing],
            parameters=Parameters(),  # the page's do not apply to sub-agents
            extensions={},
            resume=(),
            follow_up="server",
            persist=False,
            span=span,
            budget=run.budget.delegate() if run.budget else None,
        )
        pieces: list[str] = []
        with trace_block(span):
            async with aclosing(self._converse(sub_run, definition.name, scope)) as events:
                async for event in events:
                    match event:
                        case TextMessageStart():
                            pieces.clear()  # the last text message is the answer
                        case TextMessageContent(content=content):
                            pieces.append(content)
                        case Usage():
                            counts.append(event)
                        case _:
                            pass
        if not (answer := join_pieces(pieces).strip()):
            raise CopilotError(f"The sub-agent {definition.name!r} has not said anything.")
        return answer

    def _build_agent(
        self,
        definition: AssistantDefinition,
        actions: Sequence[Action],
        scope: _Scope,
        depth: int,
    ) -> DirectAgent:
        parameters = self.parameters or Parameters()
        if definition.model:
            parameters = replace(parameters, model=definition.model)
        body = definition.body
        if self._body is not None and definition.name == self.name and not depth:
            body = self._body

        def write_instructions(run: RunInput) -> str:
            values = {
                "assistant": definition.model_dump(exclude={"body", "body_line"}),
                "user": run.user or "",
                "now": datetime.now(UTC),
                "properties": run.properties,
                "context": [{"description": c.description, "value": c.value} for c in run.context],
                "tools": [{"name": a.name, "description": a.description} for a in actions],
                "handoffs": [handoff.model_dump() for handoff in definition.handoffs],
                "agents": {name: one.summary for name, one in scope.definitions.items()},
            }
            source = f"{definition.name}.agent.md"
            return render_template(body, source, values, definition.body_line)

        window = None
        if definition.budget:
            window = BudgetWindow(definition.budget, rules=self.window_rules, name=definition.name)
        return DirectAgent(
            self.adapter,
            instructions=write_instructions,
            parameters=parameters,
            max_turns=definition.max_turns,
            action_timeout=self.action_timeout,
            retriever=QuestionRetriever(self.retriever) if self.retriever else None,
            files=None if depth else self.files,
            window=window,
        )

    def _report_missing(self, definition: AssistantDefinition, actions: Sequence[Action]) -> None:
        """Log each tool that an assistant names and that does not exist, once."""
        names = {action.name for action in actions}
        for name in definition.tools or ():
            key = definition.name, name
            if name.isidentifier() and name not in names | _DELEGATION and key not in self._missing:
                self._missing.add(key)
                logger.warning(
                    "The assistant %r names a tool that is not there: %s.", definition.name, name
                )


def _asks(message: Message) -> bool:
    return isinstance(message, TextMessage | ImageMessage) and message.role == "user"


def _find(definitions: Mapping[str, AssistantDefinition], name: str) -> AssistantDefinition:
    try:
        return definitions[name]
    except KeyError:
        raise AgentNotFound(name, definitions) from None


def _waits_for_somebody(turn: Sequence[Event], new: Sequence[Message]) -> bool:
    """Return whether the run must wait for the browser or for a person's answer."""
    calls = {one.id for one in new if isinstance(one, ActionExecutionMessage)}
    calls -= {one.call_id for one in new if isinstance(one, ResultMessage)}
    return bool(calls) or any(isinstance(event, Interrupt) for event in turn)


def _select_actions(actions: Sequence[Action], definition: AssistantDefinition) -> Sequence[Action]:
    """Return the actions that an assistant may call, including all actions of the page."""
    return [
        action
        for action in actions
        if action.name not in _DELEGATION
        and (action.in_browser or action.is_drawing or allows(definition, action.name))
    ]
