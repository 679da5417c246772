"""Comparison of two traces: shared steps and their differences."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal

import orjson

from copilot_runtime.extensions.tracing.store.records import Record
from copilot_runtime.extensions.tracing.store.traces import read_count
from copilot_runtime.extensions.tracing.tree import Node, build_tree, walk_tree
from copilot_runtime.telemetry import semconv

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
    read, written = (
        read_count(node.attributes.get(name))
        for name in (semconv.USAGE_INPUT_TOKENS, semconv.USAGE_OUTPUT_TOKENS)
    )
    return Step(
        name=node.span["name"],
        seconds=(node.end - node.start) / 1e9,
        input_tokens=read,
        output_tokens=written,
        error=node.error_type,
        answer=orjson.dumps(answer, default=str).decode() if answer else "",
    )
