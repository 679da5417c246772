"""Statistics over traces: counts, durations, tokens and cost by agent, model and tool."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from copilot_runtime.extensions.tracing.store.records import KINDS, Record
from copilot_runtime.extensions.tracing.store.traces import read_count, read_dollars
from copilot_runtime.extensions.tracing.tree import Node, build_tree, walk_tree
from copilot_runtime.telemetry import semconv

_SERVER = KINDS["server"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStats:
    """Statistics of all spans of one agent, model or tool. Times are in seconds."""

    name: str
    count: int
    errors: int
    p50: float
    p95: float
    input_tokens: int
    output_tokens: int
    dollars: float
    unpriced: int
    """Number of model requests without a known price."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceStats:
    """Statistics of traces by agent, model and tool, sorted by number of calls."""

    traces: int
    failed: int
    """Number of traces with a failed span."""
    spans: int
    agents: Sequence[GroupStats]
    models: Sequence[GroupStats]
    tools: Sequence[GroupStats]


class _Group:
    def __init__(self, name: str) -> None:
        self.name = name
        self.seconds: list[float] = []
        self.errors = 0
        self.tokens = [0, 0]
        self.dollars = 0.0
        self.unpriced = 0

    def add(self, node: Node) -> None:
        self.seconds.append((node.end - node.start) / 1e9)
        self.errors += node.has_failed

    def add_usage(self, of: Mapping[str, Any]) -> None:
        for place, name in enumerate((semconv.USAGE_INPUT_TOKENS, semconv.USAGE_OUTPUT_TOKENS)):
            self.tokens[place] += read_count(of.get(name)) or 0
        dollars = read_dollars(of.get(semconv.COST_DOLLARS))
        if dollars is None:
            self.unpriced += 1
        else:
            self.dollars += dollars

    def build(self) -> GroupStats:
        return GroupStats(
            name=self.name,
            count=len(self.seconds),
            errors=self.errors,
            p50=find_percentile(self.seconds, 0.5),
            p95=find_percentile(self.seconds, 0.95),
            input_tokens=self.tokens[0],
            output_tokens=self.tokens[1],
            dollars=self.dollars,
            unpriced=self.unpriced,
        )


class _Groups(dict[str, _Group]):
    def __missing__(self, name: str) -> _Group:
        self[name] = _Group(name)
        return self[name]

    def build(self) -> Sequence[GroupStats]:
        return sorted((it.build() for it in self.values()), key=lambda it: (-it.count, it.name))


def compute_stats(records: Iterable[Record]) -> TraceStats:
    """Compute statistics of traces. An agent's tokens are those of its own model requests."""
    traces: dict[str, list[Record]] = {}
    for record in records:
        traces.setdefault(record["trace_id"], []).append(record)
    agents, models, tools = _Groups(), _Groups(), _Groups()
    for spans in traces.values():
        for node in walk_tree(build_tree(spans)):
            _count(node, agents, models, tools)
    return TraceStats(
        traces=len(traces),
        failed=sum(any(it["status"]["code"] == 2 for it in spans) for spans in traces.values()),
        spans=sum(map(len, traces.values())),
        agents=agents.build(),
        models=models.build(),
        tools=tools.build(),
    )


def find_percentile(values: Sequence[float], share: float) -> float:
    """Return the percentile of values for a share from 0 to 1 (nearest rank); 0 for no values."""
    return sorted(values)[max(0, ceil(share * len(values)) - 1)] if values else 0.0


def name_model(of: Mapping[str, Any]) -> str:
    """Return the response's model, or the requested one if the response names none."""
    return str(of.get(semconv.RESPONSE_MODEL) or of.get(semconv.REQUEST_MODEL) or "unknown")


def _count(node: Node, agents: _Groups, models: _Groups, tools: _Groups) -> None:
    of = node.attributes
    if node.operation == semconv.INVOKE_AGENT:
        agents[str(of.get(semconv.AGENT_NAME) or node.span["name"])].add(node)
    elif node.operation == semconv.EXECUTE_TOOL and node.span["kind"] != _SERVER:
        tools[str(of.get(semconv.TOOL_NAME) or node.span["name"])].add(node)
    elif node.operation in semconv.INFERENCES:
        # by the requested model: failed requests have no response model
        model = models[str(of.get(semconv.REQUEST_MODEL) or name_model(of))]
        model.add(node)
        model.add_usage(of)
        if (agent := node.agent) is not None:
            name = str(agent.attributes.get(semconv.AGENT_NAME) or agent.span["name"])
            agents[name].add_usage(of)
