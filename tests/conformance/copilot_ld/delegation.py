"""The agent service: assistants list each other, ask each other, and hand over.

The cases are judged by what their outputs tell: which names, labels and texts come back, and
whether a call is refused. Their inputs name the assistants and what is asked of them.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from copilot_runtime.actions.execute import parse_failure
from copilot_runtime.api import RunInput
from copilot_runtime.api.messages import ResultMessage, TextMessage
from copilot_runtime.api.transcript import fold_messages
from copilot_runtime.base.jsonvalue import JsonObject, as_object, get_text, parse_object
from copilot_runtime.extensions.assistants.agent import AssistantAgent
from copilot_runtime.extensions.assistants.definition import AGENT_PREFIX, strip_prefix
from copilot_runtime.extensions.assistants.delegation import (
    LIST_HANDOFFS,
    LIST_SUB_AGENTS,
    RUN_HANDOFF,
    RUN_SUB_AGENT,
)
from copilot_runtime.extensions.assistants.folder import AssistantFolder
from copilot_runtime.testing import ScriptedAdapter, call, say
from tests.conformance.copilot_ld.cases import Case, Verdict

CONVERSATION = "common.Conversation.c"
SELF = "planner"
OTHERS: Mapping[str, JsonObject] = {"researcher": {"description": "Researches."}}
"""Who is there where a case does not say it."""
HANDOFFS = [{"label": "research", "agent": "researcher", "prompt": "Go"}]
"""Those of the recorded agent."""


async def answer(case: Case) -> Any:
    """Call the tool that a case is about, as a model does, and judge what it gives."""
    given = case.input if isinstance(case.input, dict) else {}
    match re.sub("[^a-z]", "", case.feature.lower().replace("sub-agent", "subagent")):
        case feature if feature.startswith("runhandoff"):
            return await _hand_over(case, given)
        case feature if feature.startswith("listhandoff"):
            result, _ = await _call(LIST_HANDOFFS, {}, given)
            return _judge_names(result, case.output, [one["label"] for one in _handoffs(given)])
        case feature if feature.startswith("listsubagent"):
            result, _ = await _call(LIST_SUB_AGENTS, {}, given)
            names = [name for name, one in _others(given).items() if one.get("infer", True)]
            return _judge_names(result, case.output, names)
        case feature if feature.startswith("runsubagent"):
            return await _ask(case, given)
        case _:
            return Verdict(False, "no such case is known")


async def _hand_over(case: Case, given: JsonObject) -> Any:
    result, _ = await _call(RUN_HANDOFF, {"label": get_text(given, "label")}, given)
    if _is_refused(case.output):
        return Verdict(parse_failure(result) is not None, result)
    new = parse_object(result).get("agent_id")
    return {"result": {"content": result}, "new_agent": new}


async def _ask(case: Case, given: JsonObject) -> Verdict:
    """Have a sub-agent say what the case says that it said; it sees nothing but the prompt."""
    name = strip_prefix(get_text(given, "agent_id") or get_text(given, "agent") or "researcher")
    prompt = get_text(given, "prompt") or "p"
    texts = [text for text in _list_texts(case.output) if not text.startswith("common.")]
    said = texts[-1] if texts else "done"
    arguments = {"agent": f"{AGENT_PREFIX}{name}", "prompt": prompt}
    more = {"infer": False} if _is_refused(case.output) and name not in _others(given) else {}
    others = {name: more} | {**_others(given)}
    result, adapter = await _call(RUN_SUB_AGENT, arguments, {**given, "agents": others}, said)
    if _is_refused(case.output):
        return Verdict(parse_failure(result) is not None, result)
    own = [one for one in adapter.requests[1].messages if isinstance(one, TextMessage)]
    asked = [one.content for one in own if one.role == "user"]
    return Verdict((result, asked) == (said, [prompt]), {"result": result, "sees": asked})


async def _call(
    tool: str, arguments: JsonObject, given: JsonObject, *said: str
) -> tuple[str, ScriptedAdapter]:
    """Return what a call of a tool gives an assistant, and the model of all."""
    adapter = ScriptedAdapter(call(tool, arguments), *(say(text) for text in said), say("done"))
    with TemporaryDirectory() as path:
        lead = {"tools": [LIST_HANDOFFS, LIST_SUB_AGENTS, RUN_SUB_AGENT]}
        _write(Path(path), SELF, {**lead, "handoffs": _handoffs(given)})
        for name, fields in _others(given).items():
            _write(Path(path), name, fields)
        for handoff in _handoffs(given):
            if handoff["agent"] not in _others(given):
                _write(Path(path), handoff["agent"], {})
        folder = AssistantFolder(path)
        folder.load()
        run = RunInput(
            thread_id=CONVERSATION,
            run_id="r",
            messages=[TextMessage(id="q", role="user", content="q")],
        )
        events = [event async for event in AssistantAgent(SELF, folder, adapter).run(run)]
    results = [one.result for one in fold_messages(events) if isinstance(one, ResultMessage)]
    return results[0], adapter


def _write(folder: Path, name: str, fields: JsonObject) -> None:
    (folder / f"{name}.agent.md").write_text(f"---\n{json.dumps(fields)}\n---\nsys prompt")


def _others(given: JsonObject) -> Mapping[str, JsonObject]:
    """Return the assistants that a case names, by a list or a mapping of them."""
    listed = given.get("agents")
    if isinstance(listed, dict):
        return {strip_prefix(name): _pick(as_object(one)) for name, one in listed.items()}
    if not isinstance(listed, list):
        return OTHERS
    named = [as_object(one) or {"name": one} for one in listed]
    return {strip_prefix(get_text(one, "name")): _pick(one) for one in named}


def _pick(fields: JsonObject) -> JsonObject:
    return {name: fields[name] for name in ("description", "infer") if name in fields}


def _handoffs(given: JsonObject) -> Sequence[Any]:
    handoffs = given.get("handoffs")
    if not isinstance(handoffs, list):
        return HANDOFFS
    return [
        {
            "label": get_text(as_object(one), "label") or str(one),
            "agent": strip_prefix(get_text(as_object(one), "agent")) or "researcher",
            "prompt": get_text(as_object(one), "prompt"),
        }
        for one in handoffs
    ]


def _judge_names(result: str, output: Any, names: Sequence[str]) -> Verdict:
    """Compare names with those in a result, and with those in what was recorded."""
    recorded = " ".join(_list_texts(output)) or json.dumps(output)
    found = [name for name in names if re.search(rf"\b{re.escape(name)}\b", result)]
    holds = found == [*names] and all(name in recorded for name in names)
    return Verdict(holds, json.loads(result))


def _is_refused(output: Any) -> bool:
    fields = as_object(output)
    return "error" in fields or any("error" in as_object(one) for one in fields.values())


def _list_texts(value: Any) -> Iterator[str]:
    """Yield all texts in a value, those first that come first."""
    if isinstance(value, str):
        yield value
    children = value.values() if isinstance(value, dict) else value
    if isinstance(value, dict | list):
        for child in children:
            yield from _list_texts(child)
