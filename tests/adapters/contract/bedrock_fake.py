"""Bedrock on loopback: `ConverseStream`, in Amazon's binary event streams.

Shapes from the service model in botocore 1.44 and the API's reference.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from struct import pack
from typing import Any
from urllib.parse import unquote
from zlib import crc32

from copilot_runtime.adapters.bedrock import BedrockAdapter
from tests.adapters.contract import fakes
from tests.adapters.contract.fakes import KEY, Asked, Control, Heard, HttpFake, Step, Tool
from tests.adapters.provider import Request

_ERRORS = {
    "overloaded": "serviceUnavailableException",
    "rate_limit": "throttlingException",
    "server_error": "modelStreamErrorException",
}
_KINDS = {
    400: "ValidationException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    408: "ModelTimeoutException",
    429: "ThrottlingException",
    503: "ServiceUnavailableException",
}
_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "content_filtered",
}
_LIMITS = {
    "temperature": "temperature",
    "top_p": "topP",
    "max_tokens": "maxTokens",
    "stop": "stopSequences",
}


class BedrockFake(HttpFake):
    name = "bedrock"
    content_type = b"application/vnd.amazon.eventstream"

    def make(self, options: Mapping[str, Any]) -> BedrockAdapter:
        usual: dict[str, Any] = {
            "base_url": self.provider.url,
            "region": "eu-west-1",
            "api_key": KEY,
        }
        return BedrockAdapter(**{**usual, **options})

    def frames(self, steps: Sequence[Step]) -> Iterator[bytes | Control]:
        counts = next((step for step in steps if isinstance(step, fakes.Tokens)), None)
        complete = not any(isinstance(step, fakes.NoDone) for step in steps)
        blocks = _Blocks()
        yield event("messageStart", {"role": "assistant"})
        for step in steps:
            match step:
                case fakes.Think(text, signature):
                    yield from blocks.piece("thought", {"reasoningContent": {"text": text}})
                    if signature:
                        signed = {"reasoningContent": {"signature": signature}}
                        yield from blocks.piece("thought", signed)
                        yield from blocks.close("thought")
                case fakes.Say(text) | fakes.Refuse(text):
                    yield from blocks.close("thought")
                    yield from blocks.piece("text", {"text": text})
                case fakes.CallStart(id, name):
                    yield from blocks.close("thought")
                    yield from blocks.close("text")
                    yield blocks.start(id, {"toolUse": {"toolUseId": id, "name": name}})
                case fakes.CallArgs(id, piece):
                    yield from blocks.piece(id, {"toolUse": {"input": piece}})
                case fakes.CallEnd(id):
                    yield from blocks.close(id)
                case fakes.Stop(reason):
                    yield from blocks.close_all()
                    yield event("messageStop", {"stopReason": _REASONS.get(reason, reason)})
                    if complete:
                        yield event("metadata", _counted(counts or fakes.Tokens(0, 0)))
                case fakes.ErrorInStream(kind, message):
                    yield exception(_ERRORS[kind], message)
                case fakes.Ping():
                    yield event("somethingNew", {})
                case fakes.Tokens() | fakes.NoDone() | fakes.Fails():
                    pass
                case _:
                    yield step

    def refusal(self, fails: fakes.Fails) -> tuple[Any, Mapping[str, str]]:
        message = fails.message
        if fails.kind == "context_length":
            message = "Input is too long for requested model."
        if fails.kind == "content_filter":
            message = "This request has been blocked by our content filters."
        kind = _KINDS.get(fails.status, "InternalServerException")
        headers = {"x-amzn-requestid": "req-7", "x-amzn-errortype": f"{kind}:http://internal/"}
        return {"message": message}, headers

    def understood(self, request: Request) -> Asked:
        body = request.body
        return Asked(
            model=unquote(request.line.split()[1].split("/")[-2]),
            messages=[*_heard(body)],
            tools=[
                Tool(
                    name=tool["toolSpec"]["name"],
                    description=tool["toolSpec"].get("description", ""),
                    parameters=tool["toolSpec"]["inputSchema"]["json"],
                )
                for tool in body.get("toolConfig", {}).get("tools", ())
                if "toolSpec" in tool
            ],
            parameters=_parameters(body),
            headers=request.headers,
            body=body,
        )


class _Blocks:
    """The numbers of the blocks that are open."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}
        self._count = 0

    def start(self, name: str, start: Any) -> bytes:
        self._open[name] = self._count
        self._count += 1
        return event("contentBlockStart", {"start": start, "contentBlockIndex": self._open[name]})

    def piece(self, name: str, delta: Any) -> Iterator[bytes]:
        """Texts and thoughts begin without a start."""
        if name not in self._open:
            self._open[name] = self._count
            self._count += 1
        yield event("contentBlockDelta", {"delta": delta, "contentBlockIndex": self._open[name]})

    def close(self, name: str) -> Iterator[bytes]:
        if (number := self._open.pop(name, None)) is not None:
            yield event("contentBlockStop", {"contentBlockIndex": number})

    def close_all(self) -> Iterator[bytes]:
        for name in [*self._open]:
            yield from self.close(name)


def event(name: str, value: Any) -> bytes:
    """Return one event as Amazon writes it."""
    kinds = {":event-type": name, ":content-type": "application/json", ":message-type": "event"}
    return message(kinds, json.dumps({**value, "p": "abcdefgh"}).encode())


def exception(name: str, said: str) -> bytes:
    """Return one exception as Amazon writes it; nothing follows it."""
    kinds = {
        ":exception-type": name,
        ":content-type": "application/json",
        ":message-type": "exception",
    }
    return message(kinds, json.dumps({"message": said}).encode())


def message(headers: Mapping[str, str], payload: bytes) -> bytes:
    """Return one message of an event stream, checksums and all."""
    written = b"".join(
        pack(">B", len(name)) + name.encode() + pack(">BH", 7, len(value)) + value.encode()
        for name, value in headers.items()
    )
    return framed(written, payload)


def framed(headers: bytes, payload: bytes) -> bytes:
    """Return one message with headers that are written already."""
    prelude = pack(">II", 16 + len(headers) + len(payload), len(headers))
    start = prelude + pack(">I", crc32(prelude)) + headers + payload
    return start + pack(">I", crc32(start))


def _counted(counts: fakes.Tokens) -> Any:
    usage = {
        "inputTokens": counts.input - counts.cached,
        "outputTokens": counts.output,
        "totalTokens": counts.input + counts.output,
        "cacheReadInputTokens": counts.cached,
        "cacheWriteInputTokens": 0,
    }
    return {"usage": usage, "metrics": {"latencyMs": 1}}


def _heard(body: Any) -> Iterator[Heard]:
    for block in body.get("system", ()):
        yield Heard(role="instructions", text=block["text"])
    for turn in body["messages"]:
        for block in turn["content"]:
            yield _heard_one(turn["role"], block)


def _heard_one(role: str, block: Any) -> Heard:
    match block:
        case {"toolUse": use}:
            return Heard(role=role, call=(use["toolUseId"], use["name"], use["input"]))
        case {"toolResult": result}:
            text = "".join(part.get("text", "") for part in result["content"])
            return Heard(role="tool", result_of=result["toolUseId"], text=text)
        case {"image": image}:
            return Heard(role=role, image=image["source"]["bytes"])
        case {"document": document}:
            return Heard(role=role, document=document["source"]["bytes"])
        case {"reasoningContent": {"reasoningText": {"signature": signature}}}:
            return Heard(role=role, thought=signature)
        case _:
            return Heard(role=role, text=block["text"])


def _parameters(body: Any) -> dict[str, Any]:
    limits = body.get("inferenceConfig", {})
    found = {name: limits[theirs] for name, theirs in _LIMITS.items() if theirs in limits}
    output = body.get("outputConfig", {})
    if effort := output.get("effort"):
        found["reasoning_effort"] = effort
    if structure := output.get("textFormat", {}).get("structure"):
        found["response_schema"] = json.loads(structure["jsonSchema"]["schema"])
    match body.get("toolConfig", {}).get("toolChoice"):
        case {"auto": _}:
            found["tool_choice"] = "auto"
        case {"any": _}:
            found["tool_choice"] = "required"
        case {"tool": {"name": name}}:
            found |= {"tool_choice": "function", "tool_choice_name": name}
        case _:
            pass
    return found
