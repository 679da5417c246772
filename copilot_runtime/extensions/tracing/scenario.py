"""Write traces as scenarios, which `copilot-runtime test` plays again."""

from collections import Counter
from collections.abc import Sequence
from shlex import quote
from typing import Any

import yaml

from copilot_runtime.agents.instructions import select_citations
from copilot_runtime.api.agent import DEFAULT_AGENT
from copilot_runtime.api.retrieval import Passage
from copilot_runtime.base.errors import NotFound
from copilot_runtime.base.jsonvalue import JsonObject, as_objects, drop_none, get_text, parse_text
from copilot_runtime.extensions.tracing.store.records import Record
from copilot_runtime.extensions.tracing.store.traces import split_traces
from copilot_runtime.extensions.tracing.tree import Node, build_tree, walk_tree
from copilot_runtime.telemetry import semconv

_HEAD = """\
# From traces. Say in `expect` what is right, then: copilot-runtime test FILE{option}
# (for a program, --target MODULE:NAME; with --offline, each needs a `script`)
"""


def write_scenarios(spans: Sequence[Record], config: str = "") -> str:
    """Return a scenario file of traces: their questions, and their calls and sources as expected.

    `config` is the settings file of the server, unless it is the usual one. Traces without a
    question are left out. Raises `NotFound` if none has one, because traces keep no content.
    """
    scenarios: list[JsonObject] = []
    names = Counter[str]()
    for trace in split_traces(spans).values():
        if (scenario := _build_scenario(trace)) is not None:
            name = scenario["name"]
            names[name] += 1
            if names[name] > 1:
                scenario["name"] = f"{name} ({names[name]})"
            scenarios.append(scenario)
    if not scenarios:
        raise NotFound("No trace has a question: telemetry.content is none, or they are no chats.")
    file = {"scenarios": scenarios}
    head = _HEAD.format(option=f" --config {quote(config)}" if config else "")
    return head + yaml.safe_dump(file, allow_unicode=True, sort_keys=False, width=100)


def _build_scenario(spans: Sequence[Record]) -> JsonObject | None:
    """Return the scenario of a run, or `None` if its spans have no question."""
    nodes = [*walk_tree(build_tree(spans))]
    run = next((it for it in nodes if semconv.RUN_ID in it.attributes), nodes[0])
    models = (it for it in nodes if it.operation in semconv.INFERENCES and it.agent is run)
    says = _read_texts(next(models, run), semconv.INPUT_MESSAGES, "user")
    says = says or _read_texts(run, semconv.INPUT_MESSAGES, "user")
    if not says:
        return None
    agent = run.attributes.get(semconv.AGENT_NAME)
    answer = "\n".join(_read_texts(run, semconv.OUTPUT_MESSAGES, "assistant"))
    calls = [
        {
            "name": node.attributes[semconv.TOOL_NAME],
            "arguments": parse_text(_read(node, semconv.TOOL_CALL_ARGUMENTS)) or {},
        }
        for node in nodes
        if semconv.TOOL_NAME in node.attributes and node.agent is run
    ]
    found = [
        document
        for node in nodes
        if node.agent is run
        for document in as_objects(_read(node, semconv.RETRIEVAL_DOCUMENTS))
    ]
    recalls = _list_citations(found, answer)
    return drop_none(
        {
            "name": " ".join(says[-1].split())[:100],
            "description": f"It answered: {answer}" if answer else None,
            "agent": None if agent == DEFAULT_AGENT else agent,
            "user": run.attributes.get(semconv.USER_NAME),
            "say": says[0] if len(says) == 1 else None,
            "turns": [{"say": say} for say in says] if len(says) > 1 else None,
            "expect": drop_none({"calls": calls or None, "recalls": recalls or None}),
        }
    )


def _list_citations(documents: Sequence[JsonObject], answer: str) -> list[str]:
    """Return the resources that an answer cites: a document rather than a part of it, which has
    another id after each change.
    """
    passages = [
        Passage(id=id, text="", url=get_text(it, "url"))
        for it in documents
        if (id := get_text(it, "id"))
    ]
    ids = [it.id.split("/")[-2:] for it in select_citations(passages, answer).values()]
    names = [f"{id[0]}/*" if id[-1].startswith("common.Chunk.") else id[-1] for id in ids]
    return [*dict.fromkeys(names)]


def _read(node: Node, name: str) -> Any:
    return node.span.get("content", {}).get(name)


def _read_texts(node: Node, name: str, role: str) -> list[str]:
    """Return the texts of the messages of a role in a content attribute, without empty ones.

    Thoughts are no texts.
    """
    texts = (
        "\n".join(
            get_text(part, "content")
            for part in as_objects(message.get("parts"))
            if part.get("type") != "reasoning"
        )
        for message in as_objects(parse_text(_read(node, name)))
        if message.get("role") == role
    )
    return [text for text in texts if text.strip()]
