"""Gemini on loopback: `streamGenerateContent?alt=sse`.

Shapes from https://ai.google.dev/api/generate-content and the types of google-genai 3.4.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from copilot_runtime.adapters.google import GoogleAdapter
from tests.adapters import provider as http
from tests.adapters.contract import fakes
from tests.adapters.contract.fakes import KEY, Asked, Control, Heard, HttpFake, Step, Tool, data
from tests.adapters.provider import Request

_ERRORS = {
    "overloaded": (503, "UNAVAILABLE"),
    "rate_limit": (429, "RESOURCE_EXHAUSTED"),
    "server_error": (500, "INTERNAL"),
}
_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_REASONS = {
    "length": "MAX_TOKENS",
    "content_filter": "SAFETY",
    "pause": "CONTINUATION",
}
_SETTINGS = {
    "temperature": "temperature",
    "top_p": "topP",
    "max_tokens": "maxOutputTokens",
    "stop": "stopSequences",
    "seed": "seed",
    "frequency_penalty": "frequencyPenalty",
    "presence_penalty": "presencePenalty",
    "response_schema": "responseJsonSchema",
}


class GoogleFake(HttpFake):
    name = "google"

    def make(self, options: Mapping[str, Any]) -> GoogleAdapter:
        usual: dict[str, Any] = {"base_url": f"{self.provider.url}/v1beta", "api_key": KEY}
        return GoogleAdapter(**{**usual, **options})

    def frames(self, steps: Sequence[Step]) -> Iterator[bytes | Control]:
        counts = next((step for step in steps if isinstance(step, fakes.Tokens)), None)
        usage = _usage(counts) if counts else {}
        calls: dict[str, tuple[str, list[str]]] = {}
        for step in steps:
            match step:
                case fakes.Think(text, signature):
                    part = {"text": text, "thought": True}
                    yield _chunk([part])
                    if signature:
                        yield _chunk([{"text": "", "thought": True, "thoughtSignature": signature}])
                case fakes.Say(text) | fakes.Refuse(text):
                    yield _chunk([{"text": text}])
                case fakes.CallStart(id, name):
                    calls[id] = (name, [])
                case fakes.CallArgs(id, piece):
                    calls[id][1].append(piece)
                case fakes.CallEnd(id):
                    yield _chunk([_call(id, *calls.pop(id))])
                case fakes.Stop(reason):
                    for id, call in calls.items():
                        yield _chunk([_call(id, *call)])
                    reason = _REASONS.get(reason, "STOP")
                    yield _chunk([{"text": ""}], finishReason=reason, usage=usage)
                case fakes.ErrorInStream(kind, message):
                    code, status = _ERRORS[kind]
                    yield data({"error": {"code": code, "message": message, "status": status}})
                case fakes.Ping():
                    yield b": ping\n\n"
                case fakes.Tokens() | fakes.NoDone() | fakes.Fails():
                    pass
                case _:
                    yield step

    def _script(self, steps: Sequence[Step]) -> Sequence[http.Step]:
        """A prompt that the filter refuses is answered with 200, and without a candidate."""
        if any(isinstance(step, fakes.Fails) and step.kind == "content_filter" for step in steps):
            blocked = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}}
            return http.streamed(data(blocked))
        return super()._script(steps)

    def refusal(self, fails: fakes.Fails) -> tuple[Any, Mapping[str, str]]:
        headers = {"x-goog-request-id": "req-7"}
        message = fails.message
        if fails.kind == "context_length":
            message = (
                "The input token count (2000000) exceeds the maximum number of tokens allowed "
                "(1048576)."
            )
        status = _STATUSES.get(fails.status, "INTERNAL")
        error = {"code": fails.status, "message": message, "status": status}
        return {"error": error}, headers

    def understood(self, request: Request) -> Asked:
        body = request.body
        model = request.line.split()[1].rpartition("/")[2].partition(":")[0]
        config = body.get("toolConfig", {}).get("functionCallingConfig", {})
        tools = [
            Tool(
                name=tool["name"],
                description=tool["description"],
                parameters=tool.get("parametersJsonSchema", {"type": "object"}),
            )
            for group in body.get("tools", ())
            for tool in group["functionDeclarations"]
        ]
        return Asked(
            model=model,
            messages=[*_heard(body)],
            tools=tools,
            parameters=_parameters(body.get("generationConfig", {})) | _choice(config),
            headers=request.headers,
            body=body,
        )


def _chunk(parts: list[Any], *, usage: Mapping[str, Any] | None = None, **more: Any) -> bytes:
    candidate = {"content": {"parts": parts, "role": "model"}, "index": 0, **more}
    chunk: dict[str, Any] = {"candidates": [candidate]}
    if usage:
        chunk["usageMetadata"] = usage
    return data({**chunk, "modelVersion": "a-model", "responseId": "answer-1"})


def _call(id: str, name: str, pieces: list[str]) -> dict[str, Any]:
    arguments = json.loads("".join(pieces) or "{}")
    return {"functionCall": {"name": name, "args": arguments, "id": id}}


def _usage(counts: fakes.Tokens) -> dict[str, int]:
    return {
        "promptTokenCount": counts.input,
        "candidatesTokenCount": counts.output - counts.reasoning,
        "totalTokenCount": counts.input + counts.output,
        "cachedContentTokenCount": counts.cached,
        "thoughtsTokenCount": counts.reasoning,
    }


def _heard(body: Any) -> Iterator[Heard]:
    for part in body.get("systemInstruction", {}).get("parts", ()):
        yield Heard(role="instructions", text=part["text"])
    for content in body["contents"]:
        role = "assistant" if content["role"] == "model" else "user"
        for part in content["parts"]:
            yield _heard_one(role, part)


def _heard_one(role: str, part: Any) -> Heard:
    match part:
        case {"functionCall": call}:
            return Heard(role=role, call=(call["id"], call["name"], call["args"]))
        case {"functionResponse": response}:
            said = response["response"]
            text = said.get("output", said.get("error", json.dumps(said)))
            return Heard(role="tool", result_of=response["id"], text=text)
        case {"inlineData": {"mimeType": mime_type, "data": content}}:
            if mime_type.startswith("image/"):
                return Heard(role=role, image=content)
            return Heard(role=role, document=content)
        case {"fileData": {"fileUri": uri}}:
            return Heard(role=role, image=uri)
        case {"thought": True, "thoughtSignature": signature}:
            return Heard(role=role, thought=signature)
        case _:
            return Heard(role=role, text=part["text"])


def _parameters(settings: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: settings[theirs] for name, theirs in _SETTINGS.items() if theirs in settings}
    thinking = settings.get("thinkingConfig", {})
    if level := thinking.get("thinkingLevel"):
        found["reasoning_effort"] = level.lower()
    return found


def _choice(config: Mapping[str, Any]) -> dict[str, Any]:
    if names := config.get("allowedFunctionNames"):
        return {"tool_choice": "function", "tool_choice_name": names[0]}
    words = {"AUTO": "auto", "NONE": "none", "ANY": "required"}
    return {"tool_choice": words[config["mode"]]} if config else {}
