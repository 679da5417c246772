"""Render traces as Mermaid sequence diagrams of calls and their responses.

Participants are agents, models, tools, and the services of remote procedure calls, as Copilot-LD
traces them: a client's span `service_name` → `rpc_service` with the server's span as a child.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from copilot_runtime.extensions.tracing.stats import name_model
from copilot_runtime.extensions.tracing.store.records import Record
from copilot_runtime.extensions.tracing.store.traces import split_traces
from copilot_runtime.extensions.tracing.tree import Node, build_tree, walk_tree
from copilot_runtime.telemetry import semconv

NOTHING = "No spans found matching the filter criteria."

MOST_CALLS = 300
"""Maximum number of calls in a diagram that stays readable."""

_FIRST = ("cli", "agent", "memory", "llm", "tool", "graph", "vector")
"""The order of Copilot-LD's services; other participants follow in order of appearance."""
_CLIENT, _SERVER = 3, 2
_STATUSES = {0: "UNSET", 1: "OK", 2: "ERROR"}
_PLAIN = re.compile(r"\w+", re.ASCII)
_ALIAS = re.compile(r"p\d+", re.ASCII)
_RESERVED = frozenset(
    (
        *("actor", "activate", "alt", "and", "autonumber", "box", "break", "create", "critical"),
        *("deactivate", "destroy", "else", "end", "link", "links", "loop", "note", "opt"),
        *("option", "over", "par", "participant", "properties", "rect", "title"),
    )
)
_LONGEST = 120
_USER = "user"


@dataclass(frozen=True, slots=True)
class _Call:
    """A call in a diagram: one arrow at its start, and one at its end."""

    caller: str
    callee: str
    request: str
    response: str
    start: int
    end: int


def draw_sequence(records: Iterable[Record], *, resource_id: str = "") -> str:
    """Draw spans as Mermaid: a diagram for each trace, or a single one for a resource."""
    traces = split_traces(records)
    if not traces:
        return NOTHING
    if not resource_id:
        return "\n\n".join(_draw_trace(trace_id, spans) for trace_id, spans in traces.items())
    calls = {trace_id: _find_calls(spans) for trace_id, spans in traces.items()}
    names = _Names(call for each in calls.values() for call in each)
    first = names.get("agent") or next(iter(names.values()), "agent")
    lines = _begin(f"Resource: {resource_id}", names)
    for trace_id, each in calls.items():
        if each:
            lines += [
                "",
                f"    Note over {first}: Trace: {trace_id}",
                "",
                *_draw_calls(each, names),
            ]
    return "\n".join(lines)


def _draw_trace(trace_id: str, spans: Sequence[Record]) -> str:
    calls = _find_calls(spans)
    names = _Names(calls)
    lines = [*_begin(f"Trace: {trace_id}", names), "", *_draw_calls(calls, names)]
    return "\n".join(lines)


class _Names(dict[str, str]):
    """Participants of a diagram and their aliases, needed if a name is not a plain word."""

    def __init__(self, calls: Iterable[_Call]) -> None:
        found = dict.fromkeys(name for call in calls for name in (call.caller, call.callee))
        ordered = [name for name in _FIRST if name in found]
        for name in [*ordered, *(name for name in found if name not in _FIRST)]:
            is_plain = _PLAIN.fullmatch(name) and name.lower() not in _RESERVED
            self[name] = name if is_plain and not _ALIAS.fullmatch(name) else f"p{len(self) + 1}"


def _begin(title: str, names: _Names) -> list[str]:
    lines = ["sequenceDiagram", f"    title {_clean(title)}", ""]
    for name, alias in names.items():
        kind = "actor" if name == _USER else "participant"
        lines.append(
            f"    {kind} {alias}" if alias == name else f"    {kind} {alias} as {_clean(name)}"
        )
    return lines


def _draw_calls(calls: Sequence[_Call], names: _Names) -> list[str]:
    """Return the arrows of calls by time; at the same time, ends precede starts."""
    moments: list[tuple[int, int, int, str]] = []
    for call in calls[:MOST_CALLS]:
        caller, callee = names[call.caller], names[call.callee]
        moments.append((call.start, 1, 0, f"    {caller}->>+{callee}: {call.request}"))
        order = 0 if call.end > call.start else 2  # not before its own beginning
        line = f"    {callee}-->>-{caller}: {call.response}"
        moments.append((call.end, order, -call.start, line))  # the inner one before the outer
    lines = [line for *_, line in sorted(moments, key=lambda moment: moment[:3])]
    if len(calls) > MOST_CALLS:
        over = names[calls[0].caller]
        lines.append(f"    Note over {over}: {len(calls) - MOST_CALLS} more calls are left out")
    return lines


def _find_calls(spans: Sequence[Record]) -> list[_Call]:
    calls: list[_Call] = []
    for node in walk_tree(build_tree(spans)):
        call = _find_rpc(node) or _find_step(node)
        if call is not None:
            calls.append(call)
    return sorted(calls, key=lambda call: call.start)


def _find_rpc(node: Node) -> _Call | None:
    """Return the remote call of a client span, or None if it has no server span below it."""
    if node.span["kind"] != _CLIENT:
        return None
    server = next((it for it in node.children if it.span["kind"] == _SERVER), None)
    if server is None:
        return None
    caller = _read(node.attributes, "service_name")
    callee = _read(server.attributes, "service_name")
    method = _read(node.attributes, "rpc_method")
    if not (caller and callee and method):
        return None
    sent = _join(node, ("request_sent", "request_received"))
    status = server.span["status"]
    response = _STATUSES.get(status["code"], "UNSET")
    if status["code"] == 2 and status["message"]:
        response += f" ({status['message']})"
    else:
        response += _join(server, ("response_sent", "response_received"))
    return _Call(caller, callee, _clean(method + sent), _clean(response), node.start, node.end)


def _find_step(node: Node) -> _Call | None:
    """Return the call of an agent, a model or a tool that a span records, or None."""
    of, operation = node.attributes, node.operation
    above = node.agent
    caller = _USER if above is None else _name_agent(above)
    if operation == semconv.INVOKE_AGENT:
        callee, request = _name_agent(node), "run" if above is None else "hand off"
    elif operation in semconv.INFERENCES:
        callee, request = name_model(of), operation
    elif operation == semconv.EXECUTE_TOOL and node.span["kind"] != _SERVER:
        callee, request = str(of.get(semconv.TOOL_NAME) or "tool"), "call"
    elif operation in (semconv.RETRIEVAL, semconv.EMBEDDINGS):
        source = of.get(semconv.DATA_SOURCE_ID) or of.get(semconv.REQUEST_MODEL)
        callee, request = str(source or operation), operation
    else:
        return None
    return _Call(caller, callee, request, _clean(_describe_end(node)), node.start, node.end)


def _name_agent(node: Node) -> str:
    return str(node.attributes.get(semconv.AGENT_NAME) or "agent")


def _describe_end(node: Node) -> str:
    if node.has_failed:
        return f"ERROR ({node.error_type})"
    counts = zip(("read", "written"), node.tokens, strict=True)
    parts = [f"{name}={count}" for name, count in counts if count is not None]
    return f"OK ({', '.join(parts)})" if parts and node.operation in semconv.INFERENCES else "OK"


def _read(attributes: Mapping[str, Any], name: str) -> str:
    """Return an attribute, spelt with an underscore in old traces and with a dot in newer ones."""
    return str(attributes.get(name) or attributes.get(name.replace("_", ".", 1)) or "")


def _join(node: Node, names: Sequence[str]) -> str:
    """Return the attributes of the first event of these names: ` (count=5)`, or nothing."""
    dotted = [name.replace("_", ".") for name in names]
    for event in node.span["events"]:
        if event["name"] in (*names, *dotted):
            pairs = [
                f"{key}={value}"
                for key, value in event["attributes"].items()
                if not key.startswith("filter_") and value not in ("", None, "null", "undefined")
            ]
            return f" ({', '.join(pairs)})" if pairs else ""
    return ""


def _clean(text: str) -> str:
    """Escape a text for Mermaid, where `;` ends a line and `#` starts a character reference."""
    line = "".join(char if char.isprintable() else " " for char in text)
    line = line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
    return line.translate(_ESCAPES)


_ESCAPES = {ord("#"): "#35;", ord(";"): "#59;"}
