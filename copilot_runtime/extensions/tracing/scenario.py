"""Write a trace as a scenario, which `copilot-runtime test` plays again."""

from collections.abc import Sequence
from typing import Any

import yaml

from copilot_runtime.api.agent import DEFAULT_AGENT
from copilot_runtime.base.errors import NotFound
from copilot_runtime.base.jsonvalue import as_objects, get_text, parse_text
from copilot_runtime.extensions.tracing.store.records import Record
from copilot_runtime.extensions.tracing.tree import Node, build_tree, walk_tree
from copilot_runtime.telemetry import semconv

_HEAD = "# From the trace {}. Say in `expect` what is right, then: copilot-runtime test FILE\n"


def write_scenario(spans: Sequence[Record]) -> str:
    """Return a scenario file of the questions of a run, which expects the same calls of tools.

    Raises `NotFound` if the spans have no question, because traces keep no content.
    """
    nodes = [*walk_tree(build_tree(spans))]
    run = next((it for it in nodes if semconv.RUN_ID in it.attributes), nodes[0])
    models = (it for it in nodes if it.operation in semconv.INFERENCES and it.agent is run)
    says = _read_texts(next(models, run), semconv.INPUT_MESSAGES, "user")
    says = says or _read_texts(run, semconv.INPUT_MESSAGES, "user")
    if not says:
        raise NotFound("The trace has no question: telemetry.content is none, or it was no chat.")
    agent = str(run.attributes.get(semconv.AGENT_NAME) or DEFAULT_AGENT)
    answer = "\n".join(_read_texts(run, semconv.OUTPUT_MESSAGES, "assistant"))
    calls = [
        {
            "name": node.attributes[semconv.TOOL_NAME],
            "arguments": parse_text(_read(node, semconv.TOOL_CALL_ARGUMENTS)) or {},
        }
        for node in nodes
        if semconv.TOOL_NAME in node.attributes and node.agent is run
    ]
    scenario = {
        "name": " ".join(says[-1].split())[:100],
        **({"description": f"It answered: {answer}"} if answer else {}),
        **({"agent": agent} if agent != DEFAULT_AGENT else {}),
        **({"turns": [{"say": say} for say in says]} if len(says) > 1 else {"say": says[0]}),
        "expect": {"calls": calls},
    }
    text = yaml.safe_dump({"scenarios": [scenario]}, allow_unicode=True, sort_keys=False, width=100)
    return _HEAD.format(run.span["trace_id"]) + text


def _read(node: Node, name: str) -> Any:
    return node.span.get("content", {}).get(name)


def _read_texts(node: Node, name: str, role: str) -> list[str]:
    """Return the texts of the messages of a role in a content attribute, without empty ones."""
    messages = as_objects(parse_text(_read(node, name)))
    texts = (
        "\n".join(get_text(part, "content") for part in as_objects(message.get("parts")))
        for message in messages
        if message.get("role") == role
    )
    return [text for text in texts if text.strip()]
