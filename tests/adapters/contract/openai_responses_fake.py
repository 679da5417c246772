"""OpenAI's Responses API."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from copilot_runtime.adapters.openai import OpenAIAdapter
from tests.adapters.contract.fakes import (
    Asked,
    Breaks,
    CallArgs,
    CallEnd,
    CallStart,
    Control,
    ErrorInStream,
    Fails,
    Heard,
    NoDone,
    Ping,
    Refuse,
    Say,
    Silence,
    Split,
    Step,
    Stop,
    Think,
    Tokens,
    Tool,
    Waits,
    data,
)
from tests.adapters.contract.openai_fake import OpenAIFake, choice_in, heard_part
from tests.adapters.provider import Request

ERRORS = {
    "overloaded": "server_is_overloaded",
    "rate_limit": "rate_limit_exceeded",
    "server_error": "server_error",
}
WISHES = {
    "max_output_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "parallel_tool_calls": "parallel_tool_calls",
}


class OpenAIResponsesFake(OpenAIFake):
    name = "openai_responses"

    def make(self, options: Mapping[str, Any]) -> OpenAIAdapter:
        return super().make({"api": "responses", **options})

    def frames(self, steps: Sequence[Step]) -> Iterator[bytes | Control]:
        answer = _Answer(steps)
        yield _event("response.created", response=answer.response("in_progress"))
        yield _event("response.in_progress", response=answer.response("in_progress"))
        for step in steps:
            match step:
                case Think(text, signature):
                    yield from answer.think(text, signature)
                case Say(text):
                    yield from answer.message("output_text", text)
                case Refuse(text):
                    yield from answer.message("refusal", text)
                case CallStart(id, name):
                    yield from answer.call(id, name)
                case CallArgs(id, piece):
                    yield answer.arguments(id, piece)
                case CallEnd(id):
                    yield from answer.call_done(id)
                case ErrorInStream(kind, message):
                    yield _event("error", code=ERRORS[kind], message=message)
                    return
                case Ping():
                    yield _event("keepalive")
                case Stop(reason):
                    yield from answer.stop(reason)
                case Tokens() | NoDone() | Fails():
                    pass
                case Breaks() | Silence() | Waits() | Split():
                    yield step

    def understood(self, request: Request) -> Asked:
        body = request.body
        wishes = {WISHES[name]: value for name, value in body.items() if name in WISHES}
        if effort := body.get("reasoning", {}).get("effort"):
            wishes["reasoning_effort"] = effort
        if format := body.get("text", {}).get("format"):
            wishes |= {"response_schema": format["schema"], "response_name": format["name"]}
        return Asked(
            model=body["model"],
            messages=[heard for item in body["input"] for heard in _heard(item)],
            tools=[
                Tool(
                    name=tool["name"],
                    description=tool["description"],
                    parameters=tool["parameters"],
                )
                for tool in body.get("tools", ())
            ],
            parameters={**wishes, **choice_in(body)},
            headers=request.headers,
            body=body,
        )


class _Answer:
    """Counts output items, and closes one before it begins another."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._tokens = next((step for step in steps if isinstance(step, Tokens)), None)
        self._count = 0
        self._open: tuple[str, int] | None = None
        self._calls: dict[str, dict[str, Any]] = {}
        self._places: dict[str, int] = {}

    def response(self, status: str, **more: Any) -> dict[str, Any]:
        usage = None
        if self._tokens is not None and status != "in_progress":
            usage = {
                "input_tokens": self._tokens.input,
                "input_tokens_details": {"cached_tokens": self._tokens.cached},
                "output_tokens": self._tokens.output,
                "output_tokens_details": {"reasoning_tokens": self._tokens.reasoning},
            }
        return {"id": "resp_1", "model": "a-model-2026", "status": status, "usage": usage, **more}

    def think(self, text: str, signature: str | None) -> Iterator[bytes]:
        yield from self._opened("reasoning", {"type": "reasoning", "id": "rs_1", "summary": []})
        at = self._count - 1
        if text:
            yield _event(
                "response.reasoning_summary_text.delta",
                output_index=at,
                summary_index=0,
                delta=text,
            )
        if signature is not None:
            item = {"type": "reasoning", "id": "rs_1", "encrypted_content": signature}
            yield _event("response.output_item.done", output_index=at, item=item)
            self._open = None

    def message(self, kind: str, text: str) -> Iterator[bytes]:
        item = {"type": "message", "id": "msg_1", "role": "assistant", "content": []}
        yield from self._opened("message", item)
        yield _event(f"response.{kind}.delta", output_index=self._count - 1, delta=text)

    def call(self, id: str, name: str) -> Iterator[bytes]:
        yield from self._closed()
        item = {"type": "function_call", "call_id": id, "name": name, "arguments": ""}
        self._calls[id], self._places[id] = {**item, "id": f"fc_{id}"}, self._count
        self._count += 1
        yield _event("response.output_item.added", output_index=self._count - 1, item=item)

    def arguments(self, id: str, piece: str) -> bytes:
        self._calls[id]["arguments"] += piece
        kind = "response.function_call_arguments.delta"
        return _event(kind, output_index=self._places[id], delta=piece)

    def call_done(self, id: str) -> Iterator[bytes]:
        at, item = self._places[id], self._calls.pop(id)
        arguments = item["arguments"]
        yield _event("response.function_call_arguments.done", output_index=at, arguments=arguments)
        yield _event("response.output_item.done", output_index=at, item=item)

    def stop(self, reason: str) -> Iterator[bytes]:
        yield from self._closed()
        words = {"length": "max_output_tokens", "content_filter": "content_filter"}
        if word := words.get(reason):
            response = self.response("incomplete", incomplete_details={"reason": word})
            yield _event("response.incomplete", response=response)
        else:
            yield _event("response.completed", response=self.response("completed"))

    def _opened(self, kind: str, item: dict[str, Any]) -> Iterator[bytes]:
        if self._open is not None and self._open[0] == kind:
            return
        yield from self._closed()
        self._open = (kind, self._count)
        self._count += 1
        yield _event("response.output_item.added", output_index=self._count - 1, item=item)

    def _closed(self) -> Iterator[bytes]:
        if self._open is not None:
            kind, at = self._open
            self._open = None
            item = {"type": kind, "id": "item_1"}
            yield _event("response.output_item.done", output_index=at, item=item)


def _heard(item: Any) -> Iterator[Heard]:
    match item:
        case {"type": "function_call"}:
            arguments = json.loads(item["arguments"])
            yield Heard(role="assistant", call=(item["call_id"], item["name"], arguments))
        case {"type": "function_call_output"}:
            yield Heard(role="tool", text=item["output"], result_of=item["call_id"])
        case {"type": "reasoning"}:
            yield Heard(role="assistant", thought=item["encrypted_content"])
        case {"role": role, "content": str(text)}:
            yield Heard(role=_role(role), text=text)
        case _:
            for part in item["content"]:
                yield heard_part(_role(item["role"]), part)


def _role(role: str) -> str:
    return "instructions" if role in ("system", "developer") else role


def _event(type: str, **fields: Any) -> bytes:
    return data({"type": type, "sequence_number": 0, **fields}, event=type)
