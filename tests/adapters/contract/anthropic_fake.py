"""A server that speaks Anthropic's Messages API.

The events are those of https://platform.claude.com/docs/en/build-with-claude/streaming.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, assert_never

from copilot_runtime.adapters.anthropic import AnthropicAdapter
from tests.adapters.contract import fakes
from tests.adapters.contract.fakes import KEY, Asked, Control, Heard, HttpFake, Step, Tool, data
from tests.adapters.provider import Request

Json = dict[str, Any]

_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "pause": "pause_turn",
}
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_ERRORS = {
    "overloaded": "overloaded_error",
    "rate_limit": "rate_limit_error",
    "server_error": "api_error",
}
_EFFORTS = {2_048: "low", 8_192: "medium", 16_384: "high"}


class AnthropicFake(HttpFake):
    name = "anthropic"

    def make(self, options: Mapping[str, Any]) -> AnthropicAdapter:
        mine: dict[str, Any] = {"api_key": KEY, "base_url": self.provider.url}
        return AnthropicAdapter(**{**mine, **options})

    def frames(self, steps: Sequence[Step]) -> Iterator[bytes | Control]:
        tokens = next(
            (step for step in steps if isinstance(step, fakes.Tokens)), fakes.Tokens(10, 5)
        )
        yield _event({"type": "message_start", "message": _message(tokens)})
        yield from _Blocks(tokens).written(steps)

    def refusal(self, fails: fakes.Fails) -> tuple[Any, Mapping[str, str]]:
        message = fails.message
        if fails.kind == "context_length":
            message = "prompt is too long: 208310 tokens > 200000 maximum"
        kind = _TYPES.get(fails.status, "api_error")
        error = {"type": kind, "message": message}
        body = {"type": "error", "error": error, "request_id": "req-7"}
        return body, {"request-id": "req-7"}

    def understood(self, request: Request) -> Asked:
        body = request.body
        heard = [Heard(role="instructions", text=block["text"]) for block in body.get("system", ())]
        for turn in body["messages"]:
            heard += [_heard(turn["role"], block) for block in turn["content"]]
        tools = [
            Tool(
                name=tool["name"],
                description=tool.get("description", ""),
                parameters=tool["input_schema"],
            )
            for tool in body.get("tools", ())
        ]
        return Asked(
            model=body["model"],
            messages=heard,
            tools=tools,
            parameters=_parameters(body),
            headers=request.headers,
            body=body,
        )


class _Blocks:
    """The blocks of one answer, each with its index."""

    def __init__(self, tokens: fakes.Tokens) -> None:
        self._tokens = tokens
        self._next = 0
        self._open: tuple[str, int] | None = None  # a text or a thought
        self._calls: dict[str, int] = {}
        self._marked = True

    def written(self, steps: Sequence[Step]) -> Iterator[bytes | Control]:
        for step in steps:
            match step:
                case fakes.Think():
                    yield from self._thought(step)
                case fakes.Say(text):
                    yield from self._begun("text", {"type": "text", "text": ""})
                    yield self._delta({"type": "text_delta", "text": text})
                case fakes.CallStart(id, name):
                    yield from self._closed()
                    self._calls[id] = self._next
                    block: Json = {"type": "tool_use", "id": id, "name": name, "input": {}}
                    yield self._started(block)
                    yield _delta(self._calls[id], {"type": "input_json_delta", "partial_json": ""})
                case fakes.CallArgs(id, piece):
                    delta = {"type": "input_json_delta", "partial_json": piece}
                    yield _delta(self._calls[id], delta)
                case fakes.CallEnd(id):
                    yield _event({"type": "content_block_stop", "index": self._calls.pop(id)})
                case fakes.Stop(reason):
                    yield from self._stopped(reason)
                case fakes.ErrorInStream(kind, message):
                    error = {"type": _ERRORS[kind], "message": message}
                    yield _event({"type": "error", "error": error, "request_id": "req-7"})
                    return
                case fakes.Ping():
                    yield _event({"type": "ping"})
                case fakes.NoDone():
                    self._marked = False
                case fakes.Tokens():
                    pass
                case fakes.Breaks() | fakes.Silence() | fakes.Waits() | fakes.Split():
                    yield step
                case fakes.Refuse() | fakes.Fails():
                    raise AssertionError(f"Anthropic does not say {step!r} in a stream.")
                case _:
                    assert_never(step)

    def _thought(self, step: fakes.Think) -> Iterator[bytes]:
        yield from self._begun("thinking", {"type": "thinking", "thinking": "", "signature": ""})
        if step.text:
            yield self._delta({"type": "thinking_delta", "thinking": step.text})
        if step.signature:
            yield self._delta({"type": "signature_delta", "signature": step.signature})
            yield from self._closed()

    def _begun(self, kind: str, block: Json) -> Iterator[bytes]:
        if self._open is None or self._open[0] != kind:
            yield from self._closed()
            self._open = (kind, self._next)
            yield self._started(block)

    def _closed(self) -> Iterator[bytes]:
        if self._open is not None:
            yield _event({"type": "content_block_stop", "index": self._open[1]})
            self._open = None

    def _started(self, block: Json) -> bytes:
        index, self._next = self._next, self._next + 1
        return _event({"type": "content_block_start", "index": index, "content_block": block})

    def _delta(self, delta: Json) -> bytes:
        assert self._open is not None
        return _delta(self._open[1], delta)

    def _stopped(self, reason: str) -> Iterator[bytes]:
        yield from self._closed()
        for index in self._calls.values():
            yield _event({"type": "content_block_stop", "index": index})
        tokens = self._tokens
        usage: Json = {"output_tokens": tokens.output}
        if tokens.reasoning:
            usage["output_tokens_details"] = {"thinking_tokens": tokens.reasoning}
        delta = {"stop_reason": _REASONS.get(reason, reason), "stop_sequence": None}
        yield _event({"type": "message_delta", "delta": delta, "usage": usage})
        if self._marked:
            yield _event({"type": "message_stop"})


def _event(value: Json) -> bytes:
    return data(value, event=value["type"])


def _delta(index: int, delta: Json) -> bytes:
    return _event({"type": "content_block_delta", "index": index, "delta": delta})


def _message(tokens: fakes.Tokens) -> Json:
    usage = {
        "input_tokens": tokens.input - tokens.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": tokens.cached,
        "output_tokens": 1,
    }
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "a-model",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }


def _heard(role: str, block: Json) -> Heard:
    match block["type"]:
        case "text":
            return Heard(role=role, text=block["text"])
        case "image":
            return Heard(role=role, image=_source(block))
        case "document":
            return Heard(role=role, document=_source(block))
        case "tool_use":
            return Heard(role=role, call=(block["id"], block["name"], block["input"]))
        case "tool_result":
            content = block["content"]
            text = content if isinstance(content, str) else json.dumps(content)
            return Heard(role="tool", text=text, result_of=block["tool_use_id"])
        case "thinking":
            return Heard(role=role, text=block["thinking"], thought=block["signature"])
        case "redacted_thinking":
            return Heard(role=role, thought=block["data"])
        case kind:
            raise AssertionError(f"Anthropic knows no block {kind!r}.")


def _source(block: Json) -> str:
    source = block["source"]
    return source.get("data") or source.get("url") or source["file_id"]


def _parameters(body: Json) -> Json:
    names = {"temperature": "temperature", "top_p": "top_p", "stop_sequences": "stop"}
    sent: Json = {ours: body[theirs] for theirs, ours in names.items() if theirs in body}
    sent["max_tokens"] = body["max_tokens"]
    if choice := body.get("tool_choice"):
        sent |= _choice(choice)
    output = body.get("output_config", {})
    if "format" in output:
        sent["response_schema"] = output["format"]["schema"]
    if "effort" in output:
        sent["reasoning_effort"] = output["effort"]
    elif effort := _EFFORTS.get(body.get("thinking", {}).get("budget_tokens")):
        sent["reasoning_effort"] = effort
    return sent


def _choice(choice: Json) -> Json:
    sent: Json = {}
    if choice.get("disable_parallel_tool_use"):
        sent["parallel_tool_calls"] = False
    match choice["type"]:
        case "any":
            sent["tool_choice"] = "required"
        case "tool":
            sent |= {"tool_choice": "function", "tool_choice_name": choice["name"]}
        case kind:
            sent["tool_choice"] = kind
    return sent
