"""Shows the sub-agents of an assistant: who works, until when, and how many tokens it took."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import aclosing

from copilot_runtime.actions.execute import parse_failure
from copilot_runtime.api.current_run import CURRENT_RUN
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
from copilot_runtime.base.jsonvalue import get_text, parse_object
from copilot_runtime.extensions.assistants.definition import strip_prefix
from copilot_runtime.extensions.assistants.delegation import RUN_SUB_AGENT


async def show_sub_agents(
    events: Events, names: Collection[str], usage: Mapping[str, Sequence[Usage]]
) -> Events:
    """Yield the events of an assistant, with the beginning and the end of each sub-agent.

    What sub-agents used that are at work when the answer is stopped counts for the run.

    Args:
        events: Those of the assistant, with its calls of sub-agents and their results.
        names: The sub-agents there are.
        usage: The tokens of each sub-agent, by the id of the call, once it has answered.
    """
    arguments: dict[str, list[str]] = {}
    working: dict[str, str] = {}
    try:
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
    finally:
        if working and (slot := CURRENT_RUN.get(None)) is not None and slot.count_usage is not None:
            for id in working:
                for count in usage.get(id, ()):
                    slot.count_usage(count)


def _describe_end(id: str, name: str, result: str) -> Event:
    if parse_failure(result) is None:
        return Subagent(subagent_id=id, status="finished", name=name, result=result)
    return Subagent(
        subagent_id=id, status="failed", name=name, message=f"The sub-agent {name!r} failed."
    )
