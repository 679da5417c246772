"""OpenAI's chat completions API, the habits of those who imitate it, and its Responses API."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from copilot_runtime.adapters.openai import OpenAIAdapter
from copilot_runtime.adapters.openai.presets import PRESETS
from copilot_runtime.adapters.openai.request import OPENAI, Preset
from tests.adapters.contract import fakes
from tests.adapters.contract.fakes import KEY, Asked, Control, Heard, HttpFake, Step, Tool, data
from tests.adapters.provider import DONE, Request

ERRORS = {
    "overloaded": {"type": "server_error", "code": 503},
    "rate_limit": {"type": "requests", "code": "rate_limit_exceeded"},
    "server_error": {"type": "server_error", "code": None},
}
REFUSALS: Mapping[str, Mapping[str, Any]] = {
    "": {"type": "invalid_request_error", "code": None},
    "context_length": {"type": "invalid_request_error", "code": "context_length_exceeded"},
    "content_filter": {"type": None, "code": "content_filter"},
}
WISHES = {
    "max_completion_tokens": "max_tokens",
    "random_seed": "seed",
    **{
        name: name
        for name in (
            *("temperature", "top_p", "max_tokens", "stop", "seed", "frequency_penalty"),
            *("presence_penalty", "reasoning_effort", "parallel_tool_calls"),
        )
    },
}
"""Name in the body → name in `Parameters`."""


class OpenAIFake(HttpFake):
    name = "openai"
    preset: Preset = OPENAI

    def make(self, options: Mapping[str, Any]) -> OpenAIAdapter:
        url = f"{self.provider.url}/v1"
        given: dict[str, Any] = {
            "api_key": KEY,
            "include_usage": True,
            "base_url": url,
            "preset": self.preset,
        }
        return OpenAIAdapter(**{**given, **options})

    def frames(self, steps: Sequence[Step]) -> Iterator[bytes | Control]:
        calls: list[str] = []
        tokens = next((step for step in steps if isinstance(step, fakes.Tokens)), None)
        yield _chunk({"role": "assistant", "content": ""})
        for step in steps:
            match step:
                case fakes.Think(text, signature):
                    if text:
                        yield _chunk({"reasoning_content": text})
                    if signature:
                        detail = {"type": "reasoning.encrypted", "data": signature, "index": 0}
                        yield _chunk({"reasoning_details": [detail]})
                case fakes.Say(text):
                    yield _chunk({"content": text})
                case fakes.Refuse(text):
                    yield _chunk({"refusal": text})
                case fakes.CallStart(id, name):
                    calls.append(id)
                    function = {"name": name, "arguments": ""}
                    yield _piece(len(calls) - 1, id=id, type="function", function=function)
                case fakes.CallArgs(id, piece):
                    yield _piece(calls.index(id), function={"arguments": piece})
                case fakes.ErrorInStream(kind, message):
                    yield data({"error": {**ERRORS[kind], "message": message}})
                    return
                case fakes.Ping():
                    yield b": ping\n\n"
                case fakes.Stop(reason):
                    word = "stop" if reason == "refusal" else reason
                    yield _chunk({}, finish=word)
                    if tokens is not None:
                        yield _usage(tokens)
                    if fakes.NoDone() not in steps:
                        yield DONE
                case fakes.CallEnd() | fakes.Tokens() | fakes.NoDone() | fakes.Fails():
                    pass
                case fakes.Breaks() | fakes.Silence() | fakes.Waits() | fakes.Split():
                    yield step

    def refusal(self, fails: fakes.Fails) -> tuple[Any, Mapping[str, str]]:
        error = {**REFUSALS[fails.kind], "message": fails.message, "param": None}
        return {"error": error}, {"x-request-id": "req-7"}

    def understood(self, request: Request) -> Asked:
        body = request.body
        tools = [tool["function"] for tool in body.get("tools", ())]
        wishes = {WISHES[name]: value for name, value in body.items() if name in WISHES}
        return Asked(
            model=body["model"],
            messages=[heard for message in body["messages"] for heard in _heard(message)],
            tools=[Tool(**tool) for tool in tools],
            parameters={**wishes, **choice_in(body), **_schema(body)},
            headers=request.headers,
            body=body,
        )


def choice_in(body: Any) -> dict[str, Any]:
    choice = body.get("tool_choice")
    if isinstance(choice, dict):
        name: str = choice.get("name") or choice["function"]["name"]
        return {"tool_choice": "function", "tool_choice_name": name}
    return {"tool_choice": "required" if choice == "any" else choice} if choice else {}


def _schema(body: Any) -> dict[str, Any]:
    if "response_format" not in body:
        return {}
    schema = body["response_format"]["json_schema"]
    return {"response_schema": schema["schema"], "response_name": schema["name"]}


def _heard(message: Any) -> Iterator[Heard]:
    role = message["role"]
    if role in ("system", "developer"):
        role = "instructions"
    for detail in message.get("reasoning_details", ()):
        yield Heard(role=role, thought=detail["data"])
    for call in message.get("tool_calls", ()):
        function = call["function"]
        arguments = json.loads(function["arguments"])
        yield Heard(role=role, call=(call["id"], function["name"], arguments))
    content = message["content"]
    if role == "tool":
        yield Heard(role=role, text=content, result_of=message["tool_call_id"])
    elif isinstance(content, str):
        yield Heard(role=role, text=content)
    for part in content if isinstance(content, list) else ():
        yield heard_part(role, part)


def heard_part(role: str, part: Any) -> Heard:
    match part:
        case {"text": str(text)}:
            return Heard(role=role, text=text)
        case {"image_url": {"url": str(url)}} | {"image_url": str(url)}:
            return Heard(role=role, image=content_of(url))
        case {"file": {"file_data": str(url)}} | {"file_data": str(url)}:
            return Heard(role=role, document=content_of(url))
        case _:
            raise AssertionError(part)


def content_of(url: str) -> str:
    """Return the base64 text of a `data:` URL, or any other address as it is."""
    return url.partition(",")[2] if url.startswith("data:") else url


def _chunk(delta: Mapping[str, Any], *, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return data({"id": "chatcmpl-1", "model": "a-model-2026", "choices": [choice]})


def _piece(index: int, **call: Any) -> bytes:
    return _chunk({"tool_calls": [{"index": index, **call}]})


def _usage(tokens: fakes.Tokens) -> bytes:
    usage = {
        "prompt_tokens": tokens.input,
        "completion_tokens": tokens.output,
        "prompt_tokens_details": {"cached_tokens": tokens.cached},
        "completion_tokens_details": {"reasoning_tokens": tokens.reasoning},
    }
    return data({"id": "chatcmpl-1", "model": "a-model-2026", "choices": [], "usage": usage})


def _like(preset: Preset) -> type[OpenAIFake]:
    return type(f"{preset.name}Fake", (OpenAIFake,), {"name": preset.adapter, "preset": preset})


def __getattr__(name: str) -> Any:
    """Return the fake of a service that imitates OpenAI, by its name in the table of adapters."""
    if name in PRESETS:
        return partial(_like(PRESETS[name]))
    raise AttributeError(name)


_RESPONSE_ERRORS = {
    "overloaded": "server_is_overloaded",
    "rate_limit": "rate_limit_exceeded",
    "server_error": "server_error",
}
_RESPONSE_WISHES = {
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
                case fakes.Think(text, signature):
                    yield from answer.think(text, signature)
                case fakes.Say(text):
                    yield from answer.message("output_text", text)
                case fakes.Refuse(text):
                    yield from answer.message("refusal", text)
                case fakes.CallStart(id, name):
                    yield from answer.call(id, name)
                case fakes.CallArgs(id, piece):
                    yield answer.arguments(id, piece)
                case fakes.CallEnd(id):
                    yield from answer.call_done(id)
                case fakes.ErrorInStream(kind, message):
                    yield _event("error", code=_RESPONSE_ERRORS[kind], message=message)
                    return
                case fakes.Ping():
                    yield _event("keepalive")
                case fakes.Stop(reason):
                    yield from answer.stop(reason)
                case fakes.Tokens() | fakes.NoDone() | fakes.Fails():
                    pass
                case fakes.Breaks() | fakes.Silence() | fakes.Waits() | fakes.Split():
                    yield step

    def understood(self, request: Request) -> Asked:
        body = request.body
        wishes = {
            _RESPONSE_WISHES[name]: value
            for name, value in body.items()
            if name in _RESPONSE_WISHES
        }
        if effort := body.get("reasoning", {}).get("effort"):
            wishes["reasoning_effort"] = effort
        if format := body.get("text", {}).get("format"):
            wishes |= {"response_schema": format["schema"], "response_name": format["name"]}
        return Asked(
            model=body["model"],
            messages=[heard for item in body["input"] for heard in _heard_item(item)],
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
        self._tokens = next((step for step in steps if isinstance(step, fakes.Tokens)), None)
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


def _heard_item(item: Any) -> Iterator[Heard]:
    match item:
        case {"type": "function_call"}:
            arguments = json.loads(item["arguments"])
            yield Heard(role="assistant", call=(item["call_id"], item["name"], arguments))
        case {"type": "function_call_output"}:
            yield Heard(role="tool", text=item["output"], result_of=item["call_id"])
        case {"type": "reasoning"}:
            yield Heard(role="assistant", thought=item["encrypted_content"])
        case {"role": role, "content": str(text)}:
            yield Heard(role=_role_of(role), text=text)
        case _:
            for part in item["content"]:
                yield heard_part(_role_of(item["role"]), part)


def _role_of(role: str) -> str:
    return "instructions" if role in ("system", "developer") else role


def _event(type: str, **fields: Any) -> bytes:
    return data({"type": type, "sequence_number": 0, **fields}, event=type)
