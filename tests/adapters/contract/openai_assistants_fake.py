"""The Assistants API, version 2: a run, its steps and its messages as they come.

Shapes from https://developers.openai.com/api/reference/resources/beta/subresources/assistants and
the types of openai 3.54.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from copilot_runtime.adapters.openai.assistants import OpenAIAssistantsAdapter
from tests.adapters.contract import fakes
from tests.adapters.contract.fakes import KEY, Asked, Control, Heard, HttpFake, Step, Tool, data
from tests.adapters.contract.openai_fake import ERRORS, REFUSALS, WISHES, choice_in, heard_part
from tests.adapters.provider import Request

THREAD, RUN = "thread_1", "run_1"

_STATUSES = {"stop": "completed", "tool_calls": "requires_action", "length": "incomplete"}


class OpenAIAssistantsFake(HttpFake):
    name = "openai_assistants"

    def make(self, options: Mapping[str, Any]) -> OpenAIAssistantsAdapter:
        given: dict[str, Any] = {"api_key": KEY, "base_url": f"{self.provider.url}/v1", **options}
        return OpenAIAssistantsAdapter(given.pop("model"), **given)

    def frames(self, steps: Sequence[Step]) -> Iterator[bytes | Control]:
        calls: dict[str, dict[str, str]] = {}
        tokens = next((step for step in steps if isinstance(step, fakes.Tokens)), None)
        yield run("queued")
        yield run("in_progress")
        for step in steps:
            match step:
                case fakes.Say(text):
                    yield _said({"type": "text", "text": {"value": text, "annotations": []}})
                case fakes.Refuse(text):
                    yield _said({"type": "refusal", "refusal": text})
                case fakes.CallStart(id, name):
                    calls[id] = {"name": name, "arguments": ""}
                    yield _called(len(calls) - 1, id=id, function={**calls[id], "output": None})
                case fakes.CallArgs(id, piece):
                    calls[id]["arguments"] += piece
                    yield _called([*calls].index(id), function={"arguments": piece})
                case fakes.ErrorInStream(kind, message):
                    yield data({**ERRORS[kind], "message": message}, event="error")
                    return
                case fakes.Ping():
                    yield b": ping\n\n"
                case fakes.Stop(reason):
                    yield run(_STATUSES.get(reason, "completed"), calls, tokens)
                    if fakes.NoDone() not in steps:
                        yield b"event: done\ndata: [DONE]\n\n"
                case (
                    fakes.Think()
                    | fakes.CallEnd()
                    | fakes.Tokens()
                    | fakes.NoDone()
                    | fakes.Fails()
                ):
                    pass
                case fakes.Breaks() | fakes.Silence() | fakes.Waits() | fakes.Split():
                    yield step

    def refusal(self, fails: fakes.Fails) -> tuple[Any, Mapping[str, str]]:
        error = {**REFUSALS[fails.kind], "message": fails.message, "param": None}
        return {"error": error}, {"x-request-id": "req-7"}

    def understood(self, request: Request) -> Asked:
        body = request.body or {}
        messages = body.get("additional_messages") or body.get("thread", {}).get("messages", ())
        heard = [one for message in messages for one in _heard(message)]
        if instructions := body.get("instructions"):
            heard.insert(0, Heard(role="instructions", text=instructions))
        for output in body.get("tool_outputs", ()):
            heard.append(
                Heard(role="tool", text=output["output"], result_of=output["tool_call_id"])
            )
        functions = [tool["function"] for tool in body.get("tools", ()) if "function" in tool]
        wishes = {WISHES[name]: value for name, value in body.items() if name in WISHES}
        if wanted := body.get("response_format"):
            named = wanted["json_schema"]
            wishes |= {"response_schema": named["schema"], "response_name": named["name"]}
        return Asked(
            model=body.get("model") or body.get("assistant_id", ""),
            messages=heard,
            tools=[Tool(**function) for function in functions],
            parameters={**wishes, **choice_in(body)},
            headers=request.headers,
            body=body,
        )


def run(
    status: str,
    calls: Mapping[str, Mapping[str, str]] | None = None,
    tokens: fakes.Tokens | None = None,
) -> bytes:
    """Return the event of a run that has come so far."""
    waits = [
        {"id": id, "type": "function", "function": function}
        for id, function in (calls or {}).items()
    ]
    action = {"type": "submit_tool_outputs", "submit_tool_outputs": {"tool_calls": waits}}
    value = {
        "id": RUN,
        "object": "thread.run",
        "thread_id": THREAD,
        "status": status,
        "model": "a-model-2026",
        "required_action": action if status == "requires_action" else None,
        "last_error": None,
        "usage": {"prompt_tokens": tokens.input, "completion_tokens": tokens.output}
        if tokens
        else None,
    }
    return data(value, event=f"thread.run.{status}")


def _said(part: Mapping[str, Any]) -> bytes:
    delta = {"content": [{"index": 0, **part}]}
    value = {"id": "msg_1", "object": "thread.message.delta", "delta": delta}
    return data(value, event="thread.message.delta")


def _called(index: int, **call: Any) -> bytes:
    details = {"type": "tool_calls", "tool_calls": [{"index": index, "type": "function", **call}]}
    delta = {"step_details": details}
    value = {"id": "step_1", "object": "thread.run.step.delta", "delta": delta}
    return data(value, event="thread.run.step.delta")


def _heard(message: Any) -> Iterator[Heard]:
    content = message["content"]
    if isinstance(content, str):
        yield Heard(role=message["role"], text=content)
    else:
        yield from (heard_part(message["role"], part) for part in content)
