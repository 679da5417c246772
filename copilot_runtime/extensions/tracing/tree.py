"""The spans of a trace as a tree, for those who draw or count them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from copilot_runtime.extensions.tracing.store.records import Record
from copilot_runtime.extensions.tracing.store.traces import sort_spans
from copilot_runtime.telemetry import semconv


@dataclass(slots=True)
class Node:
    """A span and what was done under it, by their starts."""

    span: Record
    parent: "Node | None" = None
    agent: "Node | None" = None
    """The agent that acted: the nearest span above that is one."""
    depth: int = 0
    children: "list[Node]" = field(default_factory=list["Node"])

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of the span."""
        return self.span["attributes"]

    @property
    def operation(self) -> str:
        """The value of `gen_ai.operation.name`, or nothing."""
        return str(self.attributes.get(semconv.OPERATION_NAME) or "")

    @property
    def start(self) -> int:
        """Nanoseconds since 1970."""
        return self.span["start_time_unix_nano"]

    @property
    def end(self) -> int:
        """Nanoseconds since 1970."""
        return max(self.span["end_time_unix_nano"], self.start)

    @property
    def has_failed(self) -> bool:
        """Whether the span ended with an error."""
        return self.span["status"]["code"] == 2

    @property
    def error_type(self) -> str:
        """What kind of error it was; nothing for a span that has not failed."""
        if not self.has_failed:
            return ""
        return str(self.attributes.get(semconv.ERROR_TYPE) or semconv.ERROR_TYPE_OTHER)


def build_tree(records: Iterable[Record]) -> list[Node]:
    """Return the spans that have no parent among these, each with all that is under it.

    A span that would be above itself has no parent, so that every span is found.
    """
    nodes = {record["span_id"]: Node(record) for record in sort_spans(records)}
    for node in nodes.values():
        node.parent = nodes.get(node.span["parent_span_id"])
    _cut_circles(nodes.values())
    for node in nodes.values():
        if node.parent is not None:
            node.parent.children.append(node)
    roots = [node for node in nodes.values() if node.parent is None]
    for node in walk_tree(roots):
        if (parent := node.parent) is not None:
            node.depth = parent.depth + 1
            node.agent = parent if parent.operation == semconv.INVOKE_AGENT else parent.agent
    return roots


def walk_tree(roots: Sequence[Node]) -> Iterator[Node]:
    """Yield spans, each before what is under it. A tree may be as deep as it likes."""
    waiting = [*reversed(roots)]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(node.children))


def _cut_circles(nodes: Iterable[Node]) -> None:
    """Take the parent from one span of each circle. Each span is looked at once."""
    others = set[str]()
    for node in nodes:
        path, above = set[str](), node
        while above is not None and (span_id := above.span["span_id"]) not in others:
            if span_id in path:
                above.parent = None
                break
            path.add(span_id)
            above = above.parent
        others |= path
