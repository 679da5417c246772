"""OpenAI's chat completions API, and the habits of those who imitate it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from copilot_runtime.adapters.openai import OpenAIAdapter
from copilot_runtime.adapters.openai.options import OPENAI, Preset
from copilot_runtime.adapters.openai.presets import PRESETS
from tests.adapters.contract.fakes import (
    KEY,
    Asked,
    Breaks,
    CallArgs,
    CallEnd,
    CallStart,
    Control,
    ErrorInStream,
    Fails,
    Heard,
    HttpFake,
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
        tokens = next((step for step in steps if isinstance(step, Tokens)), None)
        yield _chunk({"role": "assistant", "content": ""})
        for step in steps:
            match step:
                case Think(text):
                    yield _chunk({"reasoning_content": text})
                case Say(text):
                    yield _chunk({"content": text})
                case Refuse(text):
                    yield _chunk({"refusal": text})
                case CallStart(id, name):
                    calls.append(id)
                    function = {"name": name, "arguments": ""}
                    yield _piece(len(calls) - 1, id=id, type="function", function=function)
                case CallArgs(id, piece):
                    yield _piece(calls.index(id), function={"arguments": piece})
                case ErrorInStream(kind, message):
                    yield data({"error": {**ERRORS[kind], "message": message}})
                    return
                case Ping():
                    yield b": ping\n\n"
                case Stop(reason):
                    word = "stop" if reason == "refusal" else reason
                    yield _chunk({}, finish=word)
                    if tokens is not None:
                        yield _usage(tokens)
                    if NoDone() not in steps:
                        yield DONE
                case CallEnd() | Tokens() | NoDone() | Fails():
                    pass
                case Breaks() | Silence() | Waits() | Split():
                    yield step

    def refusal(self, fails: Fails) -> tuple[Any, Mapping[str, str]]:
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
    if thought := message.get("reasoning_content"):
        yield Heard(role=role, thought=thought)
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


def _usage(tokens: Tokens) -> bytes:
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
