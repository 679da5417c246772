"""Delegation between assistants: hand-offs and sub-agents."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from copilot_runtime.actions.execute import parse_failure
from copilot_runtime.api.action import Action, ActionContext
from copilot_runtime.api.events import (
    ActionExecutionArgs,
    ActionExecutionEnd,
    ActionExecutionResult,
    ActionExecutionStart,
    Event,
    Events,
    Subagent,
    Usage,
)
from copilot_runtime.api.messages import Message, ResultMessage, TextMessage
from copilot_runtime.api.retrieval import Passage, Retriever
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import CopilotError, Misuse
from copilot_runtime.base.jsonvalue import as_text, get_text, parse_object
from copilot_runtime.extensions.assistants.definition import (
    AGENT_PREFIX,
    AssistantDefinition,
    HandOff,
    strip_prefix,
)

RUN_HANDOFF = "run_handoff"
RUN_SUB_AGENT = "run_sub_agent"
LIST_HANDOFFS = "list_handoffs"
LIST_SUB_AGENTS = "list_sub_agents"

PROMPT_PREFIX = "handoff-"
"""Prefix of the identifiers of hand-off prompts."""

AskSubAgent = Callable[[AssistantDefinition, str, ActionContext], Awaitable[str]]
"""Sends a prompt to an assistant in a separate conversation, and returns its answer."""


class Switch(NamedTuple):
    """A hand-off that took place."""

    agent: str
    prompt: str


def build_handoff(definition: AssistantDefinition, conversation_id: str) -> list[Action]:
    """Return the action by which an assistant hands off, or an empty list without successors."""
    by_label = {handoff.label: handoff for handoff in definition.handoffs}
    if not by_label:
        return []

    async def run(values: Mapping[str, Any], context: ActionContext) -> Any:
        del context
        return describe_switch(_choose(by_label, as_text(values.get("label"))), conversation_id)

    lines = "\n".join(f"- {handoff.label}: to {handoff.agent}" for handoff in by_label.values())
    return [
        Action(
            name=RUN_HANDOFF,
            description=f"Hand the conversation over to another assistant.\n{lines}",
            parameters={
                "type": "object",
                "properties": {"label": {"type": "string", "enum": [*by_label]}},
                "required": ["label"],
            },
            run=run,
            ends_run=True,
            is_idempotent=True,
        )
    ]


def describe_switch(handoff: HandOff, conversation_id: str) -> dict[str, str]:
    """Return the result of a hand-off: the new assistant, and the prompt for it."""
    return {
        "resource_id": conversation_id,
        "agent_id": f"{AGENT_PREFIX}{handoff.agent}",
        "prompt": handoff.prompt,
    }


def build_sub_agents(
    sub_agents: Mapping[str, AssistantDefinition], ask: AskSubAgent, timeout: float
) -> list[Action]:
    """Return the action by which an assistant calls sub-agents, or an empty list without any.

    A sub-agent's timeout is `timeout` seconds for each of its turns, because it calls tools itself.
    """
    if not sub_agents:
        return []

    async def run(values: Mapping[str, Any], context: ActionContext) -> Any:
        name = strip_prefix(as_text(values.get("agent")))
        prompt = as_text(values.get("prompt")).strip()
        if name not in sub_agents:
            raise Misuse(
                f"There is no sub-agent {name[:100]!r}. There are: {', '.join(sub_agents)}."
            )
        if not prompt:
            raise Misuse("The prompt is empty: say what the sub-agent has to do.")
        return await ask(sub_agents[name], prompt, context)

    lines = "\n".join(f"- {name}: {_shorten(one.summary)}" for name, one in sub_agents.items())
    return [
        Action(
            name=RUN_SUB_AGENT,
            description="Have another assistant do a part of the work. It sees nothing of this "
            f"conversation but the prompt, and returns its answer.\n{lines}",
            parameters={
                "type": "object",
                "properties": {
                    "agent": {"type": "string", "enum": [*sub_agents]},
                    "prompt": {"type": "string", "description": "All that it needs to know."},
                },
                "required": ["agent", "prompt"],
            },
            run=run,
            timeout=timeout * max(one.max_turns for one in sub_agents.values()),
        )
    ]


def build_lists(
    definition: AssistantDefinition, sub_agents: Mapping[str, AssistantDefinition]
) -> list[Action]:
    """Return the actions that list the available assistants.

    Only assistants whose `tools` name them get these actions.
    """

    async def list_handoffs(values: Mapping[str, Any], context: ActionContext) -> Any:
        del values, context
        return [handoff.label for handoff in definition.handoffs]

    async def list_sub_agents(values: Mapping[str, Any], context: ActionContext) -> Any:
        del values, context
        return [
            {"name": name, "description": one.description or one.summary}
            for name, one in sub_agents.items()
        ]

    runs = {LIST_HANDOFFS: list_handoffs, LIST_SUB_AGENTS: list_sub_agents}
    return [
        Action(
            name=name,
            description=f"List the {name.removeprefix('list_').replace('_', '-')} there are.",
            parameters={"type": "object", "properties": {}},
            run=run,
            is_idempotent=True,
        )
        for name, run in runs.items()
        if name in (definition.tools or ())
    ]


def follow_handoffs(
    messages: Sequence[Message], first: str, definitions: Mapping[str, AssistantDefinition]
) -> tuple[str, list[Message]]:
    """Return the assistant that answers a conversation started with `first`, and its messages.

    These are the conversation with the prompt of each hand-off, placed after the last result of its
    turn, because results must follow their calls. A hand-off counts only if the file of the
    assistant allows it: clients could send anything.
    """
    current, read, waiting = first, list[Message](), list[Message]()
    for message in messages:
        if waiting and not isinstance(message, ResultMessage):
            read += waiting
            waiting = []
        read.append(message)
        if not isinstance(message, ResultMessage) or (switch := read_switch(message)) is None:
            continue
        definition = definitions.get(current)
        if definition and any(handoff.agent == switch.agent for handoff in definition.handoffs):
            current = switch.agent
            if switch.prompt:
                id = f"{PROMPT_PREFIX}{message.id}"
                waiting.append(TextMessage(id=id, role="user", content=switch.prompt))
    return current, [*read, *waiting]


def list_sub_agents(
    definition: AssistantDefinition, definitions: Mapping[str, AssistantDefinition]
) -> Mapping[str, AssistantDefinition]:
    """Return the assistants that an assistant may call as sub-agents."""
    if not allows(definition, RUN_SUB_AGENT):
        return {}
    return {name: one for name, one in definitions.items() if one.infer and name != definition.name}


def list_successors(
    name: str, definitions: Mapping[str, AssistantDefinition]
) -> Sequence[AssistantDefinition]:
    """Return an assistant and all assistants that can be reached from it by hand-offs."""
    team: dict[str, AssistantDefinition] = {}
    names = [name]
    while names:
        definition = definitions.get(name := names.pop())
        if definition is not None and name not in team:
            team[name] = definition
            names.extend(handoff.agent for handoff in definition.handoffs)
    return [*team.values()]


def allows(definition: AssistantDefinition, name: str) -> bool:
    """Return whether an assistant may call the tool of that name."""
    return definition.tools is None or any(fnmatchcase(name, one) for one in definition.tools)


def read_switch(message: ResultMessage) -> Switch | None:
    """Return the hand-off in a result, or None if it is a failure or another result."""
    if message.name != RUN_HANDOFF or parse_failure(message.result) is not None:
        return None
    fields = parse_object(message.result)
    agent = strip_prefix(get_text(fields, "agent_id"))
    return Switch(agent, get_text(fields, "prompt")) if agent else None


def _choose(by_label: Mapping[str, HandOff], label: str) -> HandOff:
    if label not in by_label:
        raise CopilotError(
            f"There is no hand-off {label[:100]!r}. There are: {', '.join(by_label)}."
        )
    return by_label[label]


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 300 else f"{line[:299]}…"


async def show_sub_agents(
    events: Events, names: Collection[str], usage: Mapping[str, Sequence[Usage]]
) -> Events:
    """Yield an assistant's events, with the start and end of each sub-agent.

    Args:
        events: The assistant's events, with its calls of sub-agents and their results.
        names: The available sub-agents.
        usage: The token usage of each finished sub-agent, by the identifier of its call.
    """
    arguments: dict[str, list[str]] = {}
    working: dict[str, str] = {}
    async with aclosing(events):
        async for event in events:
            match event:
                case ActionExecutionStart(call_id=id, name=name) if name == RUN_SUB_AGENT:
                    arguments[id] = []
                case ActionExecutionArgs(call_id=id, delta=delta) if id in arguments:
                    arguments[id].append(delta)
                case ActionExecutionEnd(call_id=id) if id in arguments:
                    yield event
                    fields = parse_object("".join(arguments.pop(id)))
                    name = strip_prefix(get_text(fields, "agent"))
                    if name in names:
                        working[id] = name
                        yield Subagent(subagent_id=id, status="started", name=name)
                    continue
                case ActionExecutionResult(call_id=id, result=result) if id in working:
                    name = working.pop(id)
                    for count in usage.get(id, ()):
                        yield count
                    yield _describe_end(id, name, result)
                case _:
                    pass
            yield event


def _describe_end(id: str, name: str, result: str) -> Event:
    if parse_failure(result) is None:
        return Subagent(subagent_id=id, status="finished", name=name, result=result)
    return Subagent(
        subagent_id=id, status="failed", name=name, message=f"The sub-agent {name!r} failed."
    )


class QuestionRetriever:
    """Retrieves passages for the user's questions only, not for prompts between assistants."""

    def __init__(self, retriever: Retriever) -> None:
        self._retriever = retriever

    async def retrieve(self, run: RunInput) -> Sequence[Passage]:
        """Return the passages for the questions of a run."""
        messages = [one for one in run.messages if not one.id.startswith(PROMPT_PREFIX)]
        return await self._retriever.retrieve(replace(run, messages=messages))
