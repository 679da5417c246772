"""Tracks subagents: agents to which tools of a LangGraph run delegate, such as deepagents' `task`.

An agent of LangChain or deepagents has its name in the metadata of everything that runs in it
(`lc_agent_name`). It is a subagent if it runs in a tool of a graph, or of another agent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from copilot_runtime.api.events import Event, Subagent
from copilot_runtime.base.jsonvalue import (
    JsonObject,
    as_list,
    as_object,
    as_optional_text,
    get_object,
)
from copilot_runtime.extensions.frameworks.langgraph.messages import extract_text


@dataclass(slots=True)
class _Tool:
    """A tool that runs: the agent that called it, and the kind of agent that its input names."""

    caller: str | None
    kind: str | None
    namespace: str
    subagent: str | None = None


class SubagentTracker:
    """Follows the tools that run. The id of a subagent is that of its tool's run."""

    def __init__(self) -> None:
        self._tools: dict[str, _Tool] = {}
        self._namespaces: set[str] = set()

    def start_tool(self, event: JsonObject) -> None:
        """Record a tool (`on_tool_start`)."""
        metadata = get_object(event, "metadata")
        input = as_object(get_object(event, "data").get("input"))
        self._tools[str(event.get("run_id"))] = _Tool(
            caller=as_optional_text(metadata.get("lc_agent_name")),
            kind=as_optional_text(input.get("subagent_type")),
            namespace=str(metadata.get("langgraph_checkpoint_ns")),
        )

    def start_chain(self, event: JsonObject, metadata: JsonObject) -> list[Event]:
        """Return the start of a subagent if this is the first chain of it (`on_chain_start`)."""
        name = as_optional_text(metadata.get("lc_agent_name"))
        parents = reversed(as_list(event.get("parent_ids"))) if name and self._tools else ()
        id = next((parent for parent in parents if parent in self._tools), None)
        if id is None:
            return []
        tool = self._tools[id]
        # what is no agent has the name of the one that called the tool
        if tool.subagent is not None or (tool.kind is None and name == tool.caller):
            return []
        tool.subagent = tool.kind or name
        self._namespaces.add(tool.namespace)
        return [Subagent(subagent_id=id, status="started", name=tool.subagent)]

    def finish_tool(self, event: JsonObject, results: Sequence[JsonObject]) -> list[Event]:
        """Return the end of a tool's subagent; `results` are the tool's (`on_tool_end`)."""
        id = str(event.get("run_id"))
        tool = self._tools.pop(id, None)
        if tool is None or tool.subagent is None:
            return []
        result = extract_text(results[0].get("content")) if results else None
        return [Subagent(subagent_id=id, status="finished", result=result)]

    def fail_tool(self, event: JsonObject) -> list[Event]:
        """Return the failure of a tool's subagent, unless it is interrupted (`on_tool_error`)."""
        if _is_interrupt(get_object(event, "data").get("error")):
            return []
        id = str(event.get("run_id"))
        tool = self._tools.pop(id, None)
        if tool is None or tool.subagent is None:
            return []
        # the text of the exception may be secret
        message = f"The subagent {tool.subagent!r} failed."
        return [Subagent(subagent_id=id, status="failed", message=message)]

    def finish_all(self) -> list[Event]:
        """Return the ends of the subagents that an interrupt has left, the innermost first."""
        ids = [id for id, tool in self._tools.items() if tool.subagent is not None]
        self._tools.clear()
        return [Subagent(subagent_id=id, status="finished") for id in reversed(ids)]

    def contains(self, namespace: str) -> bool:
        """Return whether a namespace is that of a subagent or nested in it."""
        return any(f"{namespace}|".startswith(f"{prefix}|") for prefix in self._namespaces)


def _is_interrupt(error: Any) -> bool:
    """Return whether the error of a tool, an exception or its JSON, is an interrupt in the tool."""
    name = error.get("error") if isinstance(error, dict) else type(error).__name__
    return name == "GraphInterrupt"
