"""Streams of bytes of models and agents, changed here and there."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import orjson

from copilot_runtime import CopilotRuntime, Settings, action
from copilot_runtime.adapters.bedrock.stream import Frames
from copilot_runtime.agents.agui import AguiAgent
from tests.adapters.contract.bedrock_fake import message as framed_message
from tests.adapters.contract.fakes import (
    CallArgs,
    CallEnd,
    CallStart,
    ErrorInStream,
    HttpFake,
    Ping,
    Say,
    Step,
    Stop,
    Think,
    Tokens,
    make_fake,
)
from tests.agents.remote import FINISHED, STARTED, Reply, frame, graph_agent, remote_agent, text
from tests.fuzz.mutate import Mutator

LINES = Path(__file__).parents[1] / "extensions" / "frameworks" / "remote" / "recordings"

ANSWERS: Sequence[Sequence[Step]] = (
    (Think("Hm", "signed"), Say("Hel"), Ping(), Say("lo"), Tokens(3, 2, 1, 1), Stop()),
    (
        Say("I look."),
        CallStart("c1", "look"),
        CallArgs("c1", '{"at":'),
        CallArgs("c1", '"x"}'),
        CallEnd("c1"),
        CallStart("c2", "setColor"),
        CallArgs("c2", "{}"),
        CallEnd("c2"),
        Tokens(3, 2),
        Stop("tool_calls"),
    ),
    (Say("No"), ErrorInStream("overloaded")),
)
AGUI: Sequence[Sequence[dict[str, Any]]] = (
    (
        STARTED,
        {"type": "STEP_STARTED", "stepName": "s"},
        *text("m", "Hel", "lo"),
        {"type": "REASONING_START", "messageId": "r"},
        {"type": "REASONING_MESSAGE_START", "messageId": "r", "role": "reasoning"},
        {"type": "REASONING_MESSAGE_CONTENT", "messageId": "r", "delta": "hm"},
        {"type": "REASONING_MESSAGE_END", "messageId": "r"},
        {"type": "REASONING_END", "messageId": "r"},
        {"type": "STEP_FINISHED", "stepName": "s"},
        FINISHED,
    ),
    (
        STARTED,
        {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "look"},
        {"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": '{"at":"x"}'},
        {"type": "TOOL_CALL_END", "toolCallId": "c"},
        {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": "Hi"},
        {"type": "TOOL_CALL_CHUNK", "toolCallId": "d", "toolCallName": "setColor", "delta": "{}"},
        FINISHED,
    ),
    (
        STARTED,
        {"type": "STATE_SNAPSHOT", "snapshot": {"n": 1, "items": [1, 2, {"a": None}]}},
        {
            "type": "STATE_DELTA",
            "delta": [
                {"op": "add", "path": "/items/-", "value": 1},
                {"op": "move", "from": "/items/0", "path": "/items/1"},
                {"op": "copy", "from": "/items", "path": "/more"},
                {"op": "remove", "path": "/n"},
            ],
        },
        {"type": "ACTIVITY_SNAPSHOT", "messageId": "a", "activityType": "p", "content": {"n": 1}},
        {
            "type": "ACTIVITY_DELTA",
            "messageId": "a",
            "activityType": "p",
            "patch": [{"op": "replace", "path": "/n", "value": 2}],
        },
        {"type": "MESSAGES_SNAPSHOT", "messages": [{"id": "m", "role": "assistant"}]},
        {"type": "CUSTOM", "name": "x", "value": [1]},
        {"type": "RAW", "event": {"a": 1}, "source": "s"},
        {
            **FINISHED,
            "outcome": {"type": "interrupt", "interrupts": [{"id": "i", "reason": "ask"}]},
            "usage": [{"model": "m", "inputTokens": 1, "outputTokens": 2}],
        },
    ),
    (STARTED, {"type": "RUN_ERROR", "message": "No", "code": "E", "usage": []}),
)
CHUNK = {
    "event": "on_chat_model_stream",
    "run_id": "m",
    "name": "Model",
    "metadata": {"langgraph_node": "answer", "langgraph_checkpoint_ns": "answer:1"},
    "data": {"chunk": {"type": "AIMessageChunk", "id": "run-1", "content": "Hi"}},
}
CALLS = [{"index": 0, "id": "c", "name": "look", "args": '{"at":"x"}'}]
GRAPH: Sequence[Sequence[tuple[str, Any]]] = (
    (
        ("metadata", {"run_id": "g", "attempt": 1}),
        ("events", {**CHUNK, "event": "on_chain_start", "name": "answer"}),
        ("events", CHUNK),
        (
            "events",
            {
                **CHUNK,
                "data": {
                    "chunk": {
                        "type": "AIMessageChunk",
                        "id": "run-1",
                        "content": [{"type": "text", "text": "a", "index": 0}],
                        "tool_call_chunks": CALLS,
                        "usage_metadata": {"input_tokens": 1, "output_tokens": 2},
                    }
                },
            },
        ),
        (
            "events",
            {
                **CHUNK,
                "event": "on_chat_model_end",
                "data": {"output": {"type": "ai", "id": "run-1", "content": "Hi"}},
            },
        ),
        (
            "values",
            {
                "messages": [
                    {"type": "human", "id": "u", "content": "Hi"},
                    {"type": "ai", "id": "run-1", "content": "Hi", "tool_calls": CALLS},
                    {"type": "tool", "id": "t", "tool_call_id": "c", "content": "seen"},
                ],
                "n": 1,
            },
        ),
        ("values|sub:1", {"n": 2, "messages": []}),
        ("updates", {"__interrupt__": [{"value": "Sure?", "id": "i", "ns": ["a"]}]}),
        ("custom", {"a": 1}),
        ("events", {**CHUNK, "event": "on_tool_end", "data": {"output": {"content": "x"}}}),
        ("events", {**CHUNK, "event": "on_chain_end", "run_id": "g", "name": "graph"}),
    ),
    (("metadata", {"run_id": "g"}), ("error", {"error": "ValueError", "message": "no"})),
)


@action
def look(at: str = "") -> str:
    """Look at something."""
    return f"seen {at}"


class Upstream:
    """One model or agent behind a runtime; `new_answer` makes the bytes of one answer."""

    def __init__(self, name: str) -> None:
        self.name = name
        settings = Settings(threads="memory", log_level="critical", max_turns=3)
        if name in AGENTS:
            agent, self._make = AGENTS[name]
            agents = {"default": agent()}
            self.runtime = CopilotRuntime(agents=agents, actions=[look], settings=settings)
            self._calm = b"".join(map(frame, AGUI[0]))
        else:
            fake = make_fake(name)
            assert isinstance(fake, HttpFake)
            fake.provider.url = "http://127.0.0.1:9"
            self._answers = [[*_frames(fake, steps)] for steps in ANSWERS]
            adapter = fake.adapter(max_retries=0)
            self.runtime = CopilotRuntime(adapter=adapter, actions=[look], settings=settings)
            self._make = self._of_model
            self._calm = b"".join(self._answers[0])

    def new_replies(self, seed: str) -> list[Reply]:
        """Return the changed answer, and the one to the question after a call."""
        mutator = Mutator(seed)
        data = self._make(mutator)
        if mutator.chance(0.3):
            data = mutator.change_bytes(data)
        return [Reply(mutator.blocks(data)), Reply([self._calm])]

    def _of_model(self, mutator: Mutator) -> bytes:
        frames = mutator.pick(self._answers)
        change = _change_bedrock if self.name == "bedrock" else _change_event
        return _changed(mutator, frames, change)


def _frames(fake: HttpFake, steps: Sequence[Step]) -> list[bytes]:
    return [made for made in fake.frames(steps) if isinstance(made, bytes)]


def _changed(
    mutator: Mutator, frames: Sequence[bytes], change: Callable[[Mutator, bytes], bytes]
) -> bytes:
    made = mutator.change_order(frames) if mutator.chance(0.3) else [*frames]
    share = mutator.pick((0.1, 0.3, 1.0))
    return b"".join(change(mutator, one) if mutator.chance(share) else one for one in made)


def _change_event(mutator: Mutator, event: bytes) -> bytes:
    """Change the JSON of a server-sent event."""
    head, found, rest = event.partition(b"data: ")
    try:
        value = json.loads(rest)
    except ValueError:
        return mutator.change_bytes(event)
    return head + found + mutator.dumps(mutator.change_json(value)) + b"\n\n"


def _change_bedrock(mutator: Mutator, message: bytes) -> bytes:
    ((name, value),) = orjson.loads(Frames().feed(message)[0]).items()
    kinds = {":event-type": name, ":message-type": "event"}
    return framed_message(kinds, mutator.dumps(mutator.change_json(value)))


def _change_line(mutator: Mutator, line: bytes) -> bytes:
    return mutator.dumps(mutator.change_json(json.loads(line))) + b"\n"


def _agui(mutator: Mutator) -> bytes:
    return _changed(mutator, [*map(frame, mutator.pick(AGUI))], _change_event)


def _graph(mutator: Mutator) -> bytes:
    said = mutator.pick(GRAPH)
    frames = [f"id: {at}\nevent: {name}\n".encode() + _data(v) for at, (name, v) in enumerate(said)]
    return _changed(mutator, frames, _change_event)


def _data(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _lines(mutator: Mutator) -> bytes:
    data = mutator.pick(RECORDINGS)
    return _changed(mutator, data, _change_line)


RECORDINGS = [path.read_bytes().splitlines(keepends=True) for path in sorted(LINES.glob("*.jsonl"))]


AGENTS: dict[str, tuple[Callable[[], Any], Callable[[Mutator], bytes]]] = {
    "agui": (lambda: AguiAgent("http://127.0.0.1:9/agent"), _agui),
    "langgraph": (graph_agent, _graph),
    "remote": (remote_agent, _lines),
}
NAMES = (
    *("openai", "openai_responses", "anthropic", "google", "bedrock", "mistral", "ollama"),
    *AGENTS,
)
