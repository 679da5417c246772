"""Assistants: the loop, files, and what a request is put together of."""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from copilot_runtime.actions.execute import parse_failure
from copilot_runtime.actions.sources import select_actions
from copilot_runtime.api import Action, ActionContext, RunInput
from copilot_runtime.api.events import Event, Usage
from copilot_runtime.api.messages import Message, ResultMessage, TextMessage
from copilot_runtime.api.transcript import fold_messages
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.jsonvalue import as_object, get_text, parse_object
from copilot_runtime.extensions.assistants.agent import AssistantAgent
from copilot_runtime.extensions.assistants.definition import (
    AGENT_PREFIX,
    split_front_matter,
    strip_prefix,
)
from copilot_runtime.extensions.assistants.folder import AssistantFolder
from copilot_runtime.extensions.assistants.window import (
    calculate_budget,
    order_messages,
    share_results,
)
from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.tools.catalog.definition import ToolDefinition
from copilot_runtime.extensions.tools.catalog.tool import NOTHING, read_result
from copilot_runtime.testing import ScriptedAdapter, call, say
from tests.conformance.copilot_ld.cases import Case, Verdict

CONVERSATION = "common.Conversation.c"


async def answer(case: Case) -> Any:
    """Answer a conversation with a scripted model."""
    text = case.input if isinstance(case.input, str) else ""
    if "user message" in case.feature:
        return await _setup(case)
    if "iteration" in case.feature or "truncated" in text:
        return await _continue(int(found[0]) if (found := re.findall(r"\d+", text)) else 1)
    return await _call_tools(case, text)


async def _setup(case: Case) -> Any:
    """Answer messages that the input lists, such as `user one, assistant x`."""
    turns = re.findall(r"(user|assistant) (\w+)", case.input)
    messages = [TextMessage(id="s", role="system", content="s")]
    messages += [
        TextMessage(id=f"m{at}", role=role, content=content)
        for at, (role, content) in enumerate(turns)
    ]
    agent, adapter = _build(say("done"), name="common.Agent.planner")
    await _run(agent, messages)
    (request,) = adapter.requests
    questions = [
        one for one in request.messages if isinstance(one, TextMessage) and one.role == "user"
    ]
    id = Identifier("common.Message", questions[-1].id, CONVERSATION)
    return {
        "content": questions[-1].content,
        "parentIsConv": id.parent == CONVERSATION,
        "agent_id": f"{AGENT_PREFIX}{agent.name}",
    }


async def _continue(count: int) -> Any:
    """Have a model answer so often with what is cut; an assistant asks at most a hundred times."""
    answers = [[*say("x"), Usage(model="m", stop_reason="length")] for _ in range(count)]
    agent, adapter = _build(*answers, fields="continuations: 99\n")
    await _run(agent, [TextMessage(id="q", role="user", content="q")])
    return {"llm_calls": len(adapter.requests)}


async def _call_tools(case: Case, text: str) -> Verdict:
    """Call tools at once, the first of which waits for the others, and compare what is saved."""
    saved = [message for group in case.output["saved"] for message in group]
    expected = [[one["tool_call_id"], one["content"]] for one in saved if one["role"] == "tool"]
    given = dict(re.findall(r"\b([a-z])\s*\(([^)]*)\)", text))
    names = [*given] or [*"abcdefgh"[: len(expected)]]
    others = len(names) - 1
    are_others_done = asyncio.Event()

    def build_tool(name: str, content: str) -> Action:
        async def run(values: Mapping[str, Any], context: ActionContext) -> Any:
            nonlocal others
            if name == names[0] and others > 0:
                await are_others_done.wait()
            else:
                others -= 1
                if others == 0:
                    are_others_done.set()
            return await _give(given.get(name, ""), content, context)

        return Action(name=name, run=run)

    tools = [build_tool(name, content) for name, (_, content) in zip(names, expected, strict=True)]
    ids = [id for id, _ in expected]
    calls = [event for name, id in zip(names, ids, strict=True) for event in call(name, id=id)]
    agent, adapter = _build(calls, say("done"))
    events = await _run(agent, [TextMessage(id="q", role="user", content="q")], tools)
    made = fold_messages(events)
    results = [[one.call_id, _read(one)] for one in made if isinstance(one, ResultMessage)]
    texts = [one.content for one in made if isinstance(one, TextMessage)]
    answers = [one["content"] for one in saved if one["role"] == "assistant" and one["content"]]
    holds = (
        len(adapter.requests) == case.output["llm_calls"]
        and [[id, _normalize(content)] for id, content in results]
        == [[id, _normalize(content)] for id, content in expected]
        and texts == answers
    )
    return Verdict(holds, {"results": results, "texts": texts})


async def _give(kind: str, content: str, context: ActionContext) -> Any:
    """Return what a tool of a kind gives, or raise what it raises, before the agent reads it.

    The kinds are the words of the cases: content, identifiers (of resources with these contents,
    or of none), throws, and neither of them.
    """
    failure = as_object(parse_object(content).get("error"))
    if re.search(r"throw|error|fail", kind) or failure:
        message = get_text(failure, "message")
        if "no content or identifiers" not in message:
            raise CopilotError(message)
    texts = [] if content == NOTHING else content.split("\n\n")

    async def read_resources(uris: Sequence[str], context: ActionContext) -> Sequence[str]:
        return texts

    tool = ToolDefinition.model_construct(
        name="t", source="", kind="grpc", method="x.Y.Z", result_form=None
    )
    value: Any = {"content": content}
    if failure:
        value = {}
    elif "identifiers" in kind or content == NOTHING:
        value = {"identifiers": [f"common.Document.d{at}" for at in range(len(texts))]}
    return await read_result(tool, value, read_resources, context)


def _normalize(content: str) -> Any:
    """Return a failure as its message: codes are theirs."""
    failure = as_object(parse_object(content).get("error"))
    return get_text(failure, "message") if failure else content


def answer_seed(case: Case) -> Any:
    """Calculate, order and merge as in November 2025."""
    given = case.input
    if "permanent" in given:
        permanent = [Action(name=name, description="permanent") for name in given["permanent"]]
        others = [Action(name=name, description="remembered") for name in given["remembered"]]
        merged = select_actions(permanent, others, for_agent=True)
        return [f"{action.name}({action.description})" for action in merged]
    if "window" in given:
        window = {part: [f"R:{name}" for name in names] for part, names in given["window"].items()}
        assistant, tasks = ["ASSISTANT"] * given["assistant"], ["TASK"] * given["tasks"]
        return order_messages(assistant, tasks, **window)
    if "permanent_tools" in given:
        return calculate_budget(
            given["budget"], given["assistant"], given["permanent_tools"], given["tasks"]
        )
    return share_results(given["budget"], given.get("share", 1), given.get("calls", 1))


def answer_config(case: Case) -> Any:
    """Tell the front matter of a file from the rest."""
    front_matter, content = split_front_matter(case.input)
    return {"data": yaml.safe_load(front_matter or "") or {}, "content": content}


def _build(
    *turns: Sequence[Event], name: str = "a", fields: str = ""
) -> tuple[AssistantAgent, ScriptedAdapter]:
    """Return an assistant, by a name with or without its prefix, and its model."""
    adapter = ScriptedAdapter(*turns)
    name = strip_prefix(name)
    with TemporaryDirectory() as path:
        (Path(path) / f"{name}.agent.md").write_text(f"---\n{fields}---\nsys prompt")
        folder = AssistantFolder(path)
        folder.load()
    return AssistantAgent(name, _Still(folder), adapter), adapter


class _Still(AssistantFolder):
    """A folder whose files are never looked at again."""

    def __init__(self, folder: AssistantFolder) -> None:
        super().__init__(folder.path)
        self.definitions = folder.definitions

    async def refresh(self) -> bool:
        return False


async def _run(
    agent: AssistantAgent, messages: Sequence[Message], tools: Sequence[Action] = ()
) -> list[Event]:
    run = RunInput(thread_id="c", run_id="r", messages=messages, actions=tools)
    return [event async for event in agent.run(run)]


def _read(message: ResultMessage) -> str:
    """Return a result in the words of Copilot-LD."""
    failure = parse_failure(message.result)
    if failure is None:
        return message.result
    return json.dumps({"error": {"type": "tool_execution_error", "message": failure}})
