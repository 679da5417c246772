"""Builds the request of a graph run: input, configuration, headers, thread id, and answers."""

import re
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from copilot_runtime.agents.forwarding import describe_actions, forward_headers
from copilot_runtime.agui.outcome import encode_langgraph_value
from copilot_runtime.api.events import Interrupt
from copilot_runtime.api.identity import Caller
from copilot_runtime.api.messages import new_id
from copilot_runtime.api.run_input import Resume, RunInput
from copilot_runtime.base.errors import Misuse
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import (
    JsonObject,
    as_list,
    as_object,
    as_objects,
    as_optional_text,
    drop_none,
    parse_text,
)
from copilot_runtime.extensions.frameworks.langgraph.messages import (
    decode_langchain,
    encode_v1_history,
)
from copilot_runtime.extensions.generative_ui.a2ui.catalog import split_catalog

_INTERNAL_KEYS = frozenset({"messages", "copilotkit", "tools", "ag-ui", "__interrupt__"})
"""Keys of a state that are hidden from clients."""

STREAM_MODES = ("events", "values", "updates", "custom")

CAPABILITIES: Mapping[str, Any] = {
    "identity": {"type": "langgraph"},
    "humanInTheLoop": {"supported": True, "interrupts": True, "approveWithEdits": True},
    "state": {"snapshots": True, "deltas": True, "persistentState": True},
}
"""`Agent.capabilities` as in `@ag-ui/langgraph`; the deltas are ours."""

_FORWARDED_HEADERS = "copilotkit_forwarded_headers"
"""Where CopilotKit's Python SDK finds the headers for the requests of a graph to its models."""
_RESERVED_PREFIXES = ("__", "langgraph_auth", "langgraph_request", "checkpoint_", "x-")
_RESERVED_KEYS = frozenset(
    {"thread_id", "run_id", "graph_id", "assistant_id", "user_id", _FORWARDED_HEADERS}
)
"""Keys that a page may not add. LangGraph's servers, and the SDK, take `x-*` for headers."""
_MAX_STEPS = 25
"""LangGraph's own `recursion_limit`."""


@dataclass(frozen=True, slots=True)
class Assistant:
    """A graph: the keys of its input and output, None if the server has no schema.

    One `in_process` gets tools as AG-UI's adapter of Python gives them, one on a server as Node
    does: in OpenAI's form, the only one that LangChain's models in JavaScript take from a state.
    """

    id: str
    input_keys: frozenset[str] | None = None
    output_keys: frozenset[str] | None = None
    in_process: bool = False


def build_headers(
    caller: RunInput | Caller, properties: Mapping[str, Any], ours: Mapping[str, str]
) -> dict[str, str]:
    """Return the headers of a request: forwarded ones, the user's token, and ours, which win."""
    headers = forward_headers(caller.headers, "accept", "content-")
    token = properties.get("authorization")
    if isinstance(token, str) and token.strip() and token.isprintable() and token.isascii():
        word, _, rest = token.strip().partition(" ")
        token = rest.strip() if word.lower() == "bearer" else token.strip()
        headers["authorization"] = f"Bearer {token}"
    return {**headers, **ours}


def filter_state(state: Mapping[str, Any], keys: Collection[str] | None = None) -> JsonObject:
    """Return the part of a state that clients may read: the graph's output, no internal keys."""
    return {
        key: value
        for key, value in state.items()
        if key not in _INTERNAL_KEYS and (keys is None or key in keys)
    }


def select_state(
    values: Mapping[str, Any], assistant: Assistant
) -> tuple[JsonObject, list[JsonObject]] | None:
    """Return the state of a thread and its messages, as CopilotKit v1 loads them, None if empty."""
    if not values:
        return None
    return filter_state(values, assistant.output_keys), encode_v1_history(values.get("messages"))


def build_input(
    run: RunInput,
    assistant: Assistant,
    state: Any,
    messages: Sequence[JsonObject],
    before: Mapping[str, Any],
) -> JsonObject:
    """Return the input of a graph: messages, actions, context, and the changes of the page's state.

    The whole state would be wrong: a graph with reducers would add it again with each request.
    """
    page = filter_state(as_object(state))
    changes = {key: v for key, v in page.items() if key not in before or before[key] != v}
    actions = {action.name: action for action in reversed(run.actions)}  # the first of a name
    tools = describe_actions(reversed(actions.values()))
    if not assistant.in_process:
        tools = [{"type": "function", "name": one["name"], "function": one} for one in tools]
    catalog, items = split_catalog(run.context)
    context = [{"description": item.description, "value": item.value} for item in items]
    a2ui = {"a2ui_schema": catalog, "inject_a2ui_tool": run.properties.get("injectA2UITool")}
    input: JsonObject = {
        **changes,
        "messages": [*messages],
        "tools": tools,
        "copilotkit": {"actions": tools, "context": context},
        "ag-ui": {"tools": tools, "context": context, **drop_none(a2ui)},  # as ag-ui-langgraph
    }
    keys = assistant.input_keys
    if keys is None:
        return input
    accepted = {key: value for key, value in input.items() if key in keys}
    # a graph does not run with an empty input
    return accepted or {key: value for key, value in page.items() if key in keys}


def merge_config(
    ours: Mapping[str, Any], run: RunInput, *, replaced: Container[str] = ()
) -> JsonObject:
    """Return the operator's configuration with the client's additions, which replace no value.

    They include the `x-*` headers of the caller, for the graph's requests to its models, except
    those in `replaced` (lower-case names).
    """
    theirs = as_object(run.agent_input.config or run.properties.get("config"))
    additions = {
        key: value
        for key, value in as_object(theirs.get("configurable")).items()
        if not key.lower().startswith(_RESERVED_PREFIXES) and key not in _RESERVED_KEYS
    }
    config = {key: value for key, value in ours.items() if key != "configurable"}
    configurable = {**additions, **ours.get("configurable", {})}
    headers = forward_headers(run.headers)
    headers = {k: v for k, v in headers.items() if k.startswith("x-") and k not in replaced}
    if headers:
        fixed = {k.lower(): v for k, v in as_object(configurable.get(_FORWARDED_HEADERS)).items()}
        configurable[_FORWARDED_HEADERS] = headers | fixed
    if configurable:
        config["configurable"] = configurable
    limit, most = theirs.get("recursion_limit"), ours.get("recursion_limit", _MAX_STEPS)
    if isinstance(limit, int) and not isinstance(limit, bool) and limit > 0:
        config["recursion_limit"] = min(limit, most)
    return config


def should_stream_subgraphs(run: RunInput, default: bool) -> bool:
    """Return whether to stream states of subgraphs: as the page sets it, or the default."""
    for place in (run.properties, run.agent_input.config):
        for key in ("streamSubgraphs", "stream_subgraphs"):
            if isinstance(value := place.get(key), bool):
                return value
    return default


_REASON = "langgraph:interrupt"
_VALUE, _MESSAGES = "__copilotkit_interrupt_value__", "__copilotkit_messages__"
_CANCELLED = "__agui_cancelled__"
_ID = re.compile(r"[0-9a-f]{32}")


def read_interrupts(state: Mapping[str, Any]) -> list[Interrupt]:
    """Return the open interrupts in the state of a thread."""
    tasks = as_objects(state.get("tasks"))
    return parse_interrupts([item for task in tasks for item in as_list(task.get("interrupts"))])


def parse_interrupts(items: Any) -> list[Interrupt]:
    """Return interrupts for LangGraph's JSON, each once."""
    interrupts = [_parse_interrupt(item) for item in as_objects(items)]
    return [*{interrupt.interrupt_id: interrupt for interrupt in interrupts}.values()]


def build_resume(resumes: Sequence[Resume], pending: Sequence[Interrupt]) -> Any:
    """Return the value of `Command(resume=…)`. Raises `Misuse` for an answer without an interrupt.

    Values are keyed by the ids of their interrupts. Servers before LangGraph 0.4 have no ids, and
    one interrupt at a time.
    """
    if not pending:
        raise Misuse(
            "The agent does not wait for this answer.",
            hint="It has been given before, or the thread has gone on without it.",
        )
    left = [*pending]
    values: dict[str, Any] = {}
    for resume in resumes:
        interrupt = _find_interrupt(resume, left)
        left.remove(interrupt)
        values[interrupt.interrupt_id] = _resume_value(resume, interrupt)
    return values if all(map(_ID.fullmatch, values)) else next(iter(values.values()))


def _parse_interrupt(item: Mapping[str, Any]) -> Interrupt:
    raw = item.get("value")
    fields = as_object(raw)
    id = item.get("id") or item.get("interrupt_id")
    value, messages = raw, []
    if _VALUE in fields:
        value = fields[_VALUE]
        messages = decode_langchain(
            # the message of an action has no id
            [{**one, "id": one.get("id") or new_id()} for one in as_objects(fields.get(_MESSAGES))]
        )
    schema = fields.get("responseSchema", fields.get("response_schema"))
    return Interrupt(
        interrupt_id=id if isinstance(id, str) else new_id(),
        value=value,
        messages=messages,
        reason=as_optional_text(fields.get("reason")) or _REASON,
        message=value if isinstance(value, str) else as_optional_text(fields.get("message")),
        call_id=as_optional_text(fields.get("toolCallId", fields.get("tool_call_id"))),
        response_schema=schema if isinstance(schema, dict) else None,
        expires_at=as_optional_text(fields.get("expiresAt", fields.get("expires_at"))),
        metadata={"langgraph": {"raw": raw}},
    )


def _find_interrupt(resume: Resume, pending: Sequence[Interrupt]) -> Interrupt:
    """Return the interrupt that is resumed: by its id, by its value, or the next one."""
    if resume.interrupt_id is not None:
        for interrupt in pending:
            if interrupt.interrupt_id == resume.interrupt_id:
                return interrupt
    elif pending:
        for interrupt in pending:
            if resume.value in (
                interrupt.value,
                dumps(interrupt.value).decode(),
                encode_langgraph_value(interrupt),
            ):
                return interrupt
        return pending[0]
    raise Misuse(
        "The agent does not wait for this answer.",
        hint=f"There is no open interrupt {resume.interrupt_id!r}. Was it answered twice?",
    )


def _resume_value(resume: Resume, interrupt: Interrupt) -> Any:
    """Return the value for the graph. JSON in the text of a v1 client is decoded, as on Node."""
    if resume.status == "cancelled":
        return {_CANCELLED: True, "interrupt_id": interrupt.interrupt_id}
    if resume.interrupt_id is not None:
        return resume.payload
    return parse_text(resume.response or "" if resume.payload is None else resume.payload)
