"""What a LangGraph server is asked to run: the input of a graph, its configuration, its thread."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid5

from copilot_runtime.interfaces import Caller, RunInput
from copilot_runtime.jsonvalue import JsonObject, as_object

_PLUMBING = frozenset({"messages", "copilotkit", "tools", "ag-ui", "__interrupt__"})
"""Keys of a state that are no business of the page."""

STREAMED = ("events", "values", "updates", "custom")

_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,100}")
_THREADS = UUID("8f6c1f0a-5a0e-4a54-9d0a-5b0a0a0b6d11")
_NO_HEADERS = frozenset({"connection", "cookie", "host", "transfer-encoding"})
_NO_PREFIXES = ("accept", "content-", "x-copilotcloud-")
"""What speaks of the page's own request, or to CopilotKit's runtime alone."""
_SERVERS_OWN = ("__", "langgraph_auth", "langgraph_request", "checkpoint_")
_NAMES_OWN = frozenset({"thread_id", "run_id", "graph_id", "assistant_id", "user_id"})
_MOST_STEPS = 25
"""LangGraph's own `recursion_limit`."""


@dataclass(frozen=True, slots=True)
class Assistant:
    """A graph as it is deployed: what it takes and shows, None where the server cannot say."""

    id: str
    input_keys: frozenset[str] | None = None
    output_keys: frozenset[str] | None = None


def ids_for(thread_id: str) -> Sequence[str]:
    """Return what a server may call a thread.

    LangGraph's own servers take UUIDs and nothing else, others of its protocol take any name.
    """
    try:
        return [str(UUID(thread_id))]
    except ValueError:
        made = str(uuid5(_THREADS, thread_id))
        return [thread_id, made] if _PLAIN.fullmatch(thread_id) else [made]


def headers_of(
    asker: RunInput | Caller, properties: Mapping[str, Any], ours: Mapping[str, str]
) -> dict[str, str]:
    """Return the headers to ask with: those forwarded, the person's token, and above all ours."""
    headers = {
        name.lower(): value
        for name, value in asker.headers.items()
        if name.lower() not in _NO_HEADERS and not name.lower().startswith(_NO_PREFIXES)
    }
    token = properties.get("authorization")
    if isinstance(token, str) and token.strip() and token.isprintable() and token.isascii():
        word, _, rest = token.strip().partition(" ")
        token = rest.strip() if word.lower() == "bearer" else token.strip()
        headers["authorization"] = f"Bearer {token}"
    return {**headers, **ours}


def visible(state: Mapping[str, Any], keys: Collection[str] | None = None) -> JsonObject:
    """Return what a page may see of a state: what the graph puts out, without the plumbing."""
    return {
        key: value
        for key, value in state.items()
        if key not in _PLUMBING and (keys is None or key in keys)
    }


def input_of(
    run: RunInput,
    assistant: Assistant,
    state: Any,
    messages: Sequence[JsonObject],
    before: Mapping[str, Any],
) -> JsonObject:
    """Return the input of a graph: messages, actions, context, and what the page has changed.

    The state goes there and back with each request. Only what differs is sent: a graph that adds
    what it gets to what it has would add it again each time.
    """
    given = as_object(state)
    own = visible(given)
    changed = {key: v for key, v in own.items() if key not in before or before[key] != v}
    tools = [
        {"name": a.name, "description": a.description, "parameters": dict(a.parameters)}
        for a in {action.name: action for action in reversed(run.actions)}.values()
    ][::-1]
    context = [{"description": item.description, "value": item.value} for item in run.context]
    asked: JsonObject = {
        **changed,
        "messages": [*messages],
        "tools": tools,
        "copilotkit": {"actions": tools, "context": context},
        "ag-ui": {"tools": tools, "context": context},
    }
    if assistant.input_keys is None:
        return asked
    taken = {key: value for key, value in asked.items() if key in assistant.input_keys}
    # a graph cannot be asked with nothing at all
    return taken or {key: value for key, value in own.items() if key in assistant.input_keys}


def config_of(ours: Mapping[str, Any], theirs: Any) -> JsonObject:
    """Return the configuration: what the operator has set, a page may add to, but not change."""
    theirs = as_object(theirs)
    named = theirs.get("configurable")
    added = {
        key: value
        for key, value in (named.items() if isinstance(named, dict) else ())
        if not key.startswith(_SERVERS_OWN) and key not in _NAMES_OWN
    }
    config = {key: value for key, value in ours.items() if key != "configurable"}
    configurable = {**added, **ours.get("configurable", {})}
    if configurable:
        config["configurable"] = configurable
    limit, most = theirs.get("recursion_limit"), ours.get("recursion_limit", _MOST_STEPS)
    if isinstance(limit, int) and not isinstance(limit, bool) and limit > 0:
        config["recursion_limit"] = min(limit, most)
    return config


def streams_subgraphs(run: RunInput, config: Mapping[str, Any], default: bool) -> bool:
    """Say whether the page wants to see the states of subgraphs."""
    for place in (run.properties, config):
        for key in ("streamSubgraphs", "stream_subgraphs"):
            if isinstance(wish := place.get(key), bool):
                return wish
    return default
