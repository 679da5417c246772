"""Memories of conversations, and windows on them, by the rules of both eras."""

import json
import re
from collections.abc import Iterable
from typing import Any

from copilot_runtime.extensions.knowledge.identifiers import Identifier
from copilot_runtime.extensions.knowledge.memory import Allocation, Memories, MemoryIndex
from copilot_runtime.extensions.knowledge.memory.window import SharesRules
from copilot_runtime.extensions.knowledge.resources import Resource, ResourceIndex
from copilot_runtime.storage import MemoryStorage
from tests.conformance.copilot_ld.cases import Case, Verdict

CONVERSATION = "common.Conversation.c"
AGENT = "common.Agent.a"
AGENT_TOKENS, TOOL_TOKENS = 20, 30

_ITEM = re.compile(r"(?P<name>\w+)\((?P<kind>\w+), *(?P<tokens>\d+)(?:, *(?P<score>[\d.]+))?\)")
_TYPES = {
    "tool": "tool.ToolFunction",
    "task": "plan.Task",
    "result": "tool.ToolCallMessage",
    "call": "tool.ToolCallMessage",
}
_SHARES = SharesRules()


def answer_seed(case: Case) -> Any:
    """Split, filter and build as in November 2025."""
    given = case.input
    if case.feature.startswith("splitResources"):
        return _names(**_SHARES.split(read_identifiers(given or []))._asdict())
    if case.feature.startswith("filterByBudget"):
        identifiers = read_identifiers(given.get("identifiers") or [])
        try:
            return [it.name for it in _SHARES.fit(identifiers, int(given["budget"] or 0))]
        except Exception as error:
            return _compare_error(case, error)
    shares = given.get("allocation") or {}
    parts = ("tools", "context", "conversation")
    allocation = Allocation(*(shares.get(part) or 0 for part in parts))
    identifiers = read_identifiers(given.get("resources") or [])
    window = _SHARES.select(identifiers, given.get("budget") or 0, allocation)
    return _names(tools=window.tools, context=window.context, conversation=window.conversation)


async def answer_head(case: Case) -> Any:
    """Build a window, or append and read, as in January 2026."""
    given = case.input
    if "service" in case.feature:
        settings = given if isinstance(given, dict) else {}
        return Memories(MemoryStorage(), max_tokens=settings.get("max_tokens") or 0)
    if re.search(r"append|reload|dedup", case.feature):
        return await _append(case)
    fields: dict[str, Any] = given if isinstance(given, dict) else {"max_tokens": given}
    if case.feature.startswith("tools"):
        return await _wrap_tools(re.findall(r"\w+", str(given).partition("=")[2]))
    memories = await _fill(fields)
    conversation = fields.get("conversation") or CONVERSATION
    try:
        prompt = await memories.prompt(
            conversation, fields.get("model_budget") or 230, fields.get("max_tokens") or 0
        )
    except Exception as error:
        return _compare_error(case, error)
    return [f"{message.role}:{message.content}" for message in prompt.messages]


def read_identifiers(given: Any) -> list[Identifier]:
    """Read identifiers as objects, or as text such as `t1(tool,10) m1(conv,10)`."""
    if isinstance(given, str):
        return [_read_item(found) for found in _ITEM.finditer(given)]
    return [
        Identifier(
            item.get("type") or "common.Message",
            item["name"],
            item.get("parent") or "",
            tokens=item.get("tokens"),
            score=item.get("score"),
        )
        for item in given
    ]


def _read_item(found: re.Match[str]) -> Identifier:
    word = re.sub(r"\d+$", "", found["name"])
    kind = "tool" if found["kind"] == "tool" else word
    return Identifier(
        _TYPES.get(kind, "common.Message"),
        found["name"],
        CONVERSATION if found["kind"].startswith("conv") else "",
        tokens=int(found["tokens"]),
        score=float(found["score"]) if found["score"] else None,
    )


async def _fill(fields: dict[str, Any]) -> Memories:
    """Make a conversation of an agent with one tool, and messages c0, c1 and so on."""
    storage = MemoryStorage()
    resources = ResourceIndex(storage)
    memories = Memories(storage, resources, rules="copilot-ld-2026-01")
    agent = Identifier("common.Agent", "a", tokens=AGENT_TOKENS)
    tool = Identifier("tool.ToolFunction", "t1", tokens=TOOL_TOKENS)
    await resources.put_many(
        [
            Resource(Identifier("common.Conversation", "c"), fields={"agent_id": AGENT}),
            Resource(agent, "sys prompt", fields={"tools": fields.get("tools") or ["t1"]}),
            Resource(tool, fields={"description": "d", "parameters": {"type": "object"}}),
        ]
    )
    sizes = fields.get("sizes") or []
    types = fields.get("types") or []
    for at, size in enumerate(sizes):
        type = types[at] if at < len(types) and types[at] else "common.Message"
        is_result = "tool" in type.lower()
        role = "tool" if is_result else "assistant" if "assistant" in type else "user"
        type = "tool.ToolCallMessage" if is_result else "common.Message"
        id = Identifier(type, f"m{at}", CONVERSATION, tokens=size)
        await resources.put(Resource(id, f"c{at}", role=role))
        await memories.append(CONVERSATION, id)
    return memories


async def _append(case: Case) -> Any:
    """Append a, b and a again; return what is read, also after a restart, or what was written."""
    storage = MemoryStorage()
    index = MemoryIndex(storage, CONVERSATION)
    text = case.input if isinstance(case.input, str) else ""
    names = re.findall(r"\b[a-z]\b", text) or ["a", "b", "a"]
    ids = [Identifier("common.Message", name, CONVERSATION, tokens=1) for name in names]
    await index.append(*ids)
    await index.flush()
    if isinstance(case.output, int | str):
        data = (await storage.get(index.key)).decode()
        return data if isinstance(case.output, str) else len(data.splitlines())
    if "reload" in case.feature:
        index = MemoryIndex(storage, CONVERSATION)
    found = [str(it) for it in await index.query()]
    lines = [line["id"] for line in await _read_lines(storage, index.key)]
    return lines if case.output == lines else found


async def _read_lines(storage: MemoryStorage, key: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (await storage.get(key)).splitlines()]


async def _wrap_tools(names: list[str]) -> Any:
    memories = await _fill({"tools": names})
    return (await memories.prompt(CONVERSATION, 230, 10)).tools


def _compare_error(case: Case, error: Exception) -> Verdict:
    """Compare an error by its words before a colon: behind it, JavaScript writes an object."""
    expected = case.output.get("error") if isinstance(case.output, dict) else None
    message = str(error)
    holds = isinstance(expected, str) and expected.partition(":")[0] == message.partition(":")[0]
    return Verdict(holds, {"error": message})


def _names(**parts: Iterable[Identifier]) -> dict[str, list[str]]:
    return {part: [it.name for it in identifiers] for part, identifiers in parts.items()}
