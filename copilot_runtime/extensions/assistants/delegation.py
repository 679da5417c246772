"""How assistants give work to each other: hand-offs, and sub-agents."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from copilot_runtime.actions.execute import parse_failure
from copilot_runtime.api.action import Action, ActionContext
from copilot_runtime.api.messages import Message, ResultMessage, TextMessage
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
"""The ids of what an assistant is told when it takes over begin with it."""

AskSubAgent = Callable[[AssistantDefinition, str, ActionContext], Awaitable[str]]
"""Has an assistant answer a prompt in a conversation of its own."""


class Switch(NamedTuple):
    """A hand-off that was made."""

    agent: str
    prompt: str


def build_handoff(definition: AssistantDefinition, conversation_id: str) -> list[Action]:
    """Return the action by which an assistant hands off; none if it has nobody to hand off to."""
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
    """Return the result of a hand-off: who answers from now on, and what is told to them."""
    return {
        "resource_id": conversation_id,
        "agent_id": f"{AGENT_PREFIX}{handoff.agent}",
        "prompt": handoff.prompt,
    }


def build_sub_agents(
    sub_agents: Mapping[str, AssistantDefinition], ask: AskSubAgent, timeout: float
) -> list[Action]:
    """Return the action by which an assistant asks another; none if there is nobody to ask.

    A sub-agent may take as many `timeout` seconds as it has turns, for it calls tools itself.
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
    """Return the actions that list who there is, for assistants whose `tools` name them."""

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
    """Return who answers a conversation that began with `first`, and what that one reads.

    That is the conversation with what each assistant was told when it took over, behind the last
    result of the turn that handed off: results stay beside their calls. A hand-off counts if the
    file of who made it has it, for a page may write what it likes.
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


def read_switch(message: ResultMessage) -> Switch | None:
    """Return the hand-off that a result tells of; None if it is no such result, or a failure."""
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
