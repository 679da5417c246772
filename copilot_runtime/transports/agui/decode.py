"""Decode an AG-UI `RunAgentInput` to a `RunInput`.

The fields are those of @ag-ui/core 0.0.59 and 1.0.0, decoded as leniently as by CopilotKit's own
server: `state` and `forwardedProps` may be missing or null, `tools` and `context` may be missing,
and unknown fields are ignored.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from copilot_runtime.agui.messages import decode_messages
from copilot_runtime.api.action import Action
from copilot_runtime.api.agent import DEFAULT_AGENT
from copilot_runtime.api.identity import Caller
from copilot_runtime.api.messages import drop_empty_results, new_id
from copilot_runtime.api.run_input import (
    AgentInput,
    ContextItem,
    Parameters,
    Resume,
    RunInput,
    new_run_input,
)
from copilot_runtime.base.errors import Misuse
from copilot_runtime.base.jsonvalue import (
    JsonObject,
    optional_text,
    require_list,
    require_object,
    require_text,
    to_text,
)
from copilot_runtime.threads.log_ids import build_log_id
from copilot_runtime.threads.validation import LONGEST, check_id, check_thread_id
from copilot_runtime.transports.parameters import (
    apply_forwarded_parameters,
    check_count,
    check_length,
)

_NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}


def run_input(
    body: Any,
    caller: Caller,
    *,
    agent: str | None,
    max_messages: int,
    max_items: int = 5000,
    name: str = "run",
) -> RunInput:
    """Decode the request of a run; an `agent` of `None` is the plain chat.

    Only a request named `run` is stored in its thread, continues when its client disconnects, and
    is deduplicated by its log id.
    Raises `Misuse`, which names the invalid field, or `LimitExceeded` for too many items.
    """
    fields = require_object(body, "the body")
    messages = require_list(fields.get("messages"), "messages")
    tools = require_list(fields.get("tools", []), "tools")
    context = require_list(fields.get("context", []), "context")
    check_length(messages, max_messages)
    check_count(len(tools), max_items, "tools")
    check_count(len(context), max_items, "items of context")
    check_count(_count_parts(messages), max_items, "parts and calls in its messages")
    forwarded_props = require_object(fields.get("forwardedProps") or {}, "forwardedProps")
    state = fields.get("state")
    parent = fields.get("parentRunId")
    is_run = name == "run"
    question = (agent, messages, fields.get("resume"), forwarded_props)
    return new_run_input(
        thread_id=_id(fields, "threadId", check_thread_id),
        run_id=_id(fields, "runId"),
        messages=drop_empty_results(decode_messages(messages)),
        agent=agent,
        actions=[_action(item, at) for at, item in enumerate(tools)],
        context=[_context(item, at) for at, item in enumerate(context)],
        parameters=apply_forwarded_parameters(_parameters(forwarded_props), forwarded_props),
        properties=caller.merge_properties(forwarded_props),
        headers=caller.headers,
        agents={} if state is None else {agent or DEFAULT_AGENT: AgentInput(state=state)},
        resume=_resume(fields, forwarded_props, max_items),
        extensions={"parentRunId": parent} if isinstance(parent, str) else {},
        operation=f"agent/{name}",
        request_type="Suggestion" if name == "suggest" else "Chat",
        follow_up="server",
        detached=is_run,
        user=caller.user,
        identity=caller.identity,
        parent=caller.parent,
        persist=is_run,
        log_id=build_log_id(*question) if is_run else new_id(),
    )


def _count_parts(messages: list[Any]) -> int:
    """Return the total number of parts and calls in the messages."""
    count = 0
    for message in messages:
        if isinstance(message, dict):
            if isinstance(parts := message.get("content"), list):
                count += len(parts)
            if isinstance(calls := message.get("toolCalls"), list):
                count += len(calls)
    return count


def _action(item: Any, at: int) -> Action:
    tool = require_object(item, f"tools[{at}]")
    parameters = tool.get("parameters")
    return Action(
        name=require_text(tool, "name", f"tools[{at}]"),
        description=optional_text(tool, "description", f"tools[{at}]") or "",
        parameters=parameters if isinstance(parameters, dict) else _NO_PARAMETERS,
    )


def _context(item: Any, at: int) -> ContextItem:
    found = require_object(item, f"context[{at}]")
    value = to_text(found.get("value"))  # older clients send values that are not strings
    return ContextItem(optional_text(found, "description", f"context[{at}]") or "", value)


def _parameters(forwarded_props: Mapping[str, Any]) -> Parameters:
    """Return the parameters in the request itself: only suggestions have one, `toolChoice`."""
    choice = forwarded_props.get("toolChoice")
    if isinstance(choice, str):
        return Parameters(tool_choice=choice)
    if isinstance(choice, dict):
        function = choice.get("function")
        name = function.get("name") if isinstance(function, dict) else choice.get("toolName")
        if isinstance(name, str):
            return Parameters(tool_choice="function", tool_choice_name=name)
    return _DEFAULTS


_DEFAULTS = Parameters()


def _resume(
    fields: Mapping[str, Any], forwarded_props: Mapping[str, Any], max_items: int
) -> list[Resume]:
    """Decode the answers to interrupts, in the current format or in that of older clients."""
    items = [] if fields.get("resume") is None else require_list(fields["resume"], "resume")
    check_count(len(items), max_items, "answers to interrupts")
    answers = [
        _answer(require_object(item, f"resume[{at}]"), f"resume[{at}]")
        for at, item in enumerate(items)
    ]
    command = forwarded_props.get("command")
    if isinstance(command, dict) and "resume" in command and not answers:
        payload = command["resume"]
        value = to_text(command.get("interruptEvent"))
        answers.append(Resume(value, _as_text(payload), payload=payload))
    return answers


def _answer(item: Mapping[str, Any], place: str) -> Resume:
    payload = item.get("payload")
    status = item.get("status") or "resolved"
    if status not in ("resolved", "cancelled"):
        raise Misuse(f"{place}.status must be resolved or cancelled.")
    return Resume(
        "",
        _as_text(payload),
        interrupt_id=require_text(item, "interruptId", place),
        status=status,
        payload=payload,
    )


def _as_text(value: Any) -> str | None:
    return None if value is None else to_text(value)


def _id(fields: Mapping[str, Any], name: str, check: Callable[[str, str], None] = check_id) -> str:
    value = require_text(fields, name)
    if not 0 < len(value) <= LONGEST:
        raise Misuse(f"{name} must have 1 to {LONGEST} characters.")
    check(name, value)
    return value


PROXIED_REQUEST = "__proxiedMCPRequest"
"""The forwarded property with the request of an MCP app, as CopilotKit's client sends it."""


class AppRequests(Protocol):
    """Forwards requests of MCP apps to the MCP servers that provide them."""

    async def answer(self, run: RunInput, client_host: str) -> JsonObject:
        """Return the result of the request, or an object with `error`."""
        ...
