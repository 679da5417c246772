"""Statistics of traces (counts, durations, tokens and cost), and the comparison of two of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import SequenceMatcher
from math import ceil
from operator import attrgetter
from typing import Any, Literal

import orjson

from copilot_runtime.extensions.tracing.store.records import KINDS, Record, read_cost
from copilot_runtime.extensions.tracing.store.traces import (
    TraceSummary,
    count_spans,
    split_traces,
)
from copilot_runtime.extensions.tracing.tree import Node, build_tree, walk_tree
from copilot_runtime.telemetry import semconv

_SERVER = KINDS["server"]
OWN_WORK = "(server)"
"""The name of the server's own work among users."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStats:
    """Statistics of all spans of one agent, model or tool, or of the traces of one user or time.

    Times are in seconds.
    """

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
    """Statistics of traces by agent, model, tool and user, sorted by number, and over time."""

    traces: int
    failed: int
    """Number of traces with a failed span."""
    spans: int
    agents: Sequence[GroupStats]
    models: Sequence[GroupStats]
    tools: Sequence[GroupStats]
    users: Sequence[GroupStats]
    """Traces by user; the name is empty for anonymous ones, and `OWN_WORK` for the server's own."""
    times: Sequence[GroupStats]
    """Traces by the minute, hour or day (UTC) of their start, the oldest first."""


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

    def add_usage(self, node: Node) -> None:
        for place, count in enumerate(node.tokens):
            self.tokens[place] += count or 0
        dollars = read_cost(node.attributes)
        if dollars is None:
            self.unpriced += 1
        else:
            self.dollars += dollars

    def add_trace(self, summary: TraceSummary) -> None:
        self.seconds.append(summary.duration)
        self.errors += summary.errors > 0
        self.tokens[0] += summary.input_tokens
        self.tokens[1] += summary.output_tokens
        self.dollars += summary.dollars
        self.unpriced += summary.unpriced

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
    traces = split_traces(records)
    summaries = [count_spans(*items) for items in traces.items()]
    agents, models, tools, users, times = (_Groups() for _ in range(5))
    for spans in traces.values():
        for node in walk_tree(build_tree(spans)):
            _count(node, agents, models, tools)
    write_time = _choose_unit([summary.start for summary in summaries])
    for summary in summaries:
        users[_name_user(summary, traces[summary.trace_id])].add_trace(summary)
        times[write_time(summary.start)].add_trace(summary)
    return TraceStats(
        traces=len(traces),
        failed=sum(summary.errors > 0 for summary in summaries),
        spans=sum(map(len, traces.values())),
        agents=agents.build(),
        models=models.build(),
        tools=tools.build(),
        users=users.build(),
        times=sorted(times.build(), key=attrgetter("name")),
    )


def _name_user(summary: TraceSummary, spans: Sequence[Record]) -> str:
    """Return the user of a trace, or `OWN_WORK` if no request led to it, such as `ingest`."""
    is_request = summary.run_id or summary.agent or any(it["kind"] == _SERVER for it in spans)
    return summary.user or ("" if is_request else OWN_WORK)


def _choose_unit(starts: Sequence[int]) -> Callable[[int], str]:
    """Return a function that writes a time as ISO 8601, to the minute, hour or day.

    It is the smallest unit of which the times span at most 60.
    """
    seconds = (max(starts) - min(starts)) // 10**9 if starts else 0

    def write(start: int) -> str:
        moment = datetime.fromtimestamp(start / 1e9, UTC)
        if seconds > 60 * 3600:
            return f"{moment:%Y-%m-%d}"
        return f"{moment:%Y-%m-%dT%H:00Z}" if seconds > 3600 else f"{moment:%Y-%m-%dT%H:%MZ}"

    return write


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
        model.add_usage(node)
        if (agent := node.agent) is not None:
            name = str(agent.attributes.get(semconv.AGENT_NAME) or agent.span["name"])
            agents[name].add_usage(node)


_MOST_STEPS = 2_000
"""Maximum number of compared steps per run; further steps are ignored."""

_ANSWERS = (semconv.OUTPUT_MESSAGES, semconv.TOOL_CALL_ARGUMENTS, semconv.TOOL_CALL_RESULT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step of a run, such as a model request or a tool call."""

    name: str
    seconds: float
    input_tokens: int | None = None
    output_tokens: int | None = None
    error: str = ""
    answer: str = ""
    """The output of the model or tool as JSON; empty if content is not stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDiff:
    """A step of one or both runs. `changes` names the fields that differ, except the duration."""

    state: Literal["same", "changed", "removed", "added"]
    depth: int
    before: Step | None
    after: Step | None
    changes: Sequence[str] = ()

    @property
    def name(self) -> str:
        """The name of the step."""
        step = self.after or self.before
        return step.name if step is not None else ""


def diff_traces(before: Sequence[Record], after: Sequence[Record]) -> list[StepDiff]:
    """Compare the steps of two runs in order, aligned by depth and name."""
    old, new = _list_steps(before), _list_steps(after)
    matcher = SequenceMatcher(None, _name_steps(old), _name_steps(new), autojunk=False)
    found: list[StepDiff] = []
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag == "equal":
            found += [_compare(*pair) for pair in zip(old[a:b], new[c:d], strict=True)]
            continue
        for node in old[a:b]:
            step = _describe(node)
            found.append(StepDiff(state="removed", depth=node.depth, before=step, after=None))
        for node in new[c:d]:
            step = _describe(node)
            found.append(StepDiff(state="added", depth=node.depth, before=None, after=step))
    return found


def _list_steps(spans: Sequence[Record]) -> list[Node]:
    return [*walk_tree(build_tree(spans))][:_MOST_STEPS]


def _name_steps(nodes: Sequence[Node]) -> list[tuple[int, str]]:
    return [(node.depth, node.span["name"]) for node in nodes]


def _compare(old: Node, new: Node) -> StepDiff:
    before, after = _describe(old), _describe(new)
    changes = [
        name
        for name in ("input_tokens", "output_tokens", "error", "answer")
        if getattr(before, name) != getattr(after, name)
    ]
    return StepDiff(
        state="changed" if changes else "same",
        depth=new.depth,
        before=before,
        after=after,
        changes=changes,
    )


def _describe(node: Node) -> Step:
    content: dict[str, Any] = node.span.get("content") or {}
    answer = {name: content[name] for name in _ANSWERS if name in content}
    read, written = node.tokens
    return Step(
        name=node.span["name"],
        seconds=(node.end - node.start) / 1e9,
        input_tokens=read,
        output_tokens=written,
        error=node.error_type,
        answer=orjson.dumps(answer, default=str).decode() if answer else "",
    )
