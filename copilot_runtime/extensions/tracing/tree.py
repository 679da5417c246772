"""The spans of a trace as a tree, walked by the waterfall, the diagram, statistics and diff."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from copilot_runtime.extensions.tracing.store.records import Record, read_count
from copilot_runtime.extensions.tracing.store.traces import sort_spans
from copilot_runtime.telemetry import semconv


@dataclass(slots=True)
class Node:
    """A span with its children, sorted by start."""

    span: Record
    parent: "Node | None" = None
    agent: "Node | None" = None
    """The nearest ancestor that is the span of an agent, or None."""
    depth: int = 0
    children: "list[Node]" = field(default_factory=list["Node"])

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of the span."""
        return self.span["attributes"]

    @property
    def operation(self) -> str:
        """The value of `gen_ai.operation.name`; empty if it is not set."""
        return str(self.attributes.get(semconv.OPERATION_NAME) or "")

    @property
    def tokens(self) -> tuple[int | None, int | None]:
        """The numbers of tokens that a model read and wrote, where they are known."""
        of = self.attributes
        return read_count(of.get(semconv.USAGE_INPUT_TOKENS)), read_count(
            of.get(semconv.USAGE_OUTPUT_TOKENS)
        )

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
        """True if the span ended with an error."""
        return self.span["status"]["code"] == 2

    @property
    def error_type(self) -> str:
        """The value of `error.type`; empty for a span that has not failed."""
        if not self.has_failed:
            return ""
        return str(self.attributes.get(semconv.ERROR_TYPE) or semconv.ERROR_TYPE_OTHER)


def build_tree(records: Iterable[Record]) -> list[Node]:
    """Build the trees of spans; return the roots: spans whose parent is not among the records.

    A cycle of parents is broken at one span, so that every span belongs to a tree.
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
    """Yield nodes in pre-order, without recursion: a tree may be of any depth."""
    waiting = [*reversed(roots)]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(node.children))


def _cut_circles(nodes: Iterable[Node]) -> None:
    """Remove the parent of one span in each cycle, in linear time."""
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
