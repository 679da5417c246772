"""The client's side of AG-UI (CopilotKit from 1.50 on) and of GraphQL (up to 1.10)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from copilot_runtime.agents.agui import run_agent_input
from copilot_runtime.agui.event_decoder import EventDecoder
from copilot_runtime.agui.outcome import decode_refusal
from copilot_runtime.api.action import Action
from copilot_runtime.api.events import (
    AgentState,
    Custom,
    Event,
    Interrupt,
    MessagesSnapshot,
    RunStarted,
)
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    AgentStateMessage,
    ImageMessage,
    Message,
    ResultMessage,
    TextMessage,
)
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.api.transcript import fold_conversation, fold_messages
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.jsontext import dumps, loads
from copilot_runtime.base.jsonvalue import (
    as_list,
    as_objects,
    as_text,
    get_object,
    get_text,
    parse_object,
    to_text,
)
from copilot_runtime.http.sse import SSEDecoder
from copilot_runtime.testing.connection import Connection, Response

if TYPE_CHECKING:
    from copilot_runtime.testing.client import Reply


class ReplyFailed(CopilotError):
    """The application refused a message, or its answer failed.

    `code` is the code of the error; `reply` is the partial reply before it, or `None`.
    """

    def __init__(self, message: str, *, code: str = "UNKNOWN", status: int = 200) -> None:
        super().__init__(message, status_code=status)
        self.code = code
        self.reply: Reply | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call of an answer; `result` is `None` while it is unanswered."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    result: str | None = None
    id: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to one request."""

    messages: Sequence[Message] = ()
    """The new messages."""
    conversation: Sequence[Message] | None = None
    """All messages, if the answer replaced them, or `None`."""
    state: Any = None
    """The last state of the agent, or `None`."""
    interrupts: Sequence[Interrupt] = ()
    failure: ReplyFailed | None = None
    """The error of a failed answer, or `None`."""
    events: Sequence[Event] = ()
    """All received events, if the protocol has events."""


def pair_calls(messages: Sequence[Message]) -> list[ToolCall]:
    """Return the tool calls of the messages, each with its result."""
    results = {
        message.call_id: message.result
        for message in messages
        if isinstance(message, ResultMessage)
    }
    return [
        ToolCall(message.name, parse_object(message.arguments), results.get(message.id), message.id)
        for message in messages
        if isinstance(message, ActionExecutionMessage)
    ]


def read_refusal(response: Response, path: str) -> ReplyFailed:
    """Return the error for an unsuccessful response, with the server's reason if it has one."""
    code = f"HTTP_{response.status}"
    refusal = decode_refusal(response.body)
    if refusal is not None:
        agents = f". Known: {', '.join(refusal.agents)}." if refusal.agents else ""
        code = refusal.code or code
        return ReplyFailed(f"{refusal.message}{agents}", code=code, status=response.status)
    return ReplyFailed(
        f"HTTP {response.status} at {path!r}, which is no answer of a runtime. "
        "Is it the path of its URL? Client(app, path=...), or the option --path, names another.",
        code=code,
        status=response.status,
    )


_LEGACY_INTERRUPT = "on_interrupt"


async def send_agui(
    connection: Connection, path: str, run: RunInput, headers: dict[str, str]
) -> Answer:
    """Send a run to the agent's URL below `path` and return its answer."""
    state = run.agent_input.state
    url = f"{path.rstrip('/')}/agent/{quote(run.agent_name, safe='')}/run"
    body = dumps(run_agent_input(run, state))
    response = await connection.request(
        "POST",
        url,
        body,
        {"content-type": "application/json", "accept": "text/event-stream", **headers},
    )
    if "text/event-stream" not in response.headers.get("content-type", ""):
        raise read_refusal(response, url)
    frames, decoder = SSEDecoder(), EventDecoder(run.agent_name, state, run)
    events = decoder.read([*frames.feed(response.body), *frames.finish()])
    events += decoder.finish()
    return _build_answer(run, events, decoder)


def _build_answer(run: RunInput, events: list[Event], decoder: EventDecoder) -> Answer:
    states = [event.state for event in events if isinstance(event, AgentState)]
    replaced = any(isinstance(event, MessagesSnapshot) for event in events)
    start = RunStarted(run_id=run.run_id, thread_id=run.thread_id, messages=run.messages)
    messages = fold_messages(events)
    conversation = None
    if replaced:
        before = {message.id for message in run.messages}
        conversation = fold_conversation([start, *events])
        messages = [message for message in conversation if message.id not in before]
    return Answer(
        messages=messages,
        conversation=conversation,
        state=states[-1] if states else None,
        interrupts=[*_read_interrupts(events)],
        failure=_read_failure(decoder),
        events=events,
    )


def _read_interrupts(events: list[Event]) -> list[Interrupt]:
    """Return the questions, in the current format or else in that of older clients."""
    return [event for event in events if isinstance(event, Interrupt)] or [
        Interrupt(interrupt_id="", value=event.value, message=to_text(event.value))
        for event in events
        if isinstance(event, Custom) and event.name == _LEGACY_INTERRUPT
    ]


def _read_failure(decoder: EventDecoder) -> ReplyFailed | None:
    failure: CopilotError | None = decoder.failure
    if failure is not None:
        return ReplyFailed(failure.message, code=failure.code)
    if not decoder.ended:
        return ReplyFailed("The answer broke off before its end.", code="INCOMPLETE_STREAM")
    return None


_OPERATION = "generateCopilotResponse"

_DOCUMENT = """
mutation generateCopilotResponse($data: GenerateCopilotResponseInput!, $properties: JSONObject) {
  generateCopilotResponse(data: $data, properties: $properties) {
    threadId
    status {
      ... on BaseResponseStatus { code }
      ... on FailedResponseStatus { reason details }
    }
    messages {
      __typename
      ... on BaseMessageOutput { id }
      ... on TextMessageOutput { role content parentMessageId }
      ... on ImageMessageOutput { role format bytes parentMessageId }
      ... on ActionExecutionMessageOutput { name arguments parentMessageId }
      ... on ResultMessageOutput { actionExecutionId actionName result }
      ... on AgentStateMessageOutput { agentName nodeName state active running }
    }
    metaEvents {
      ... on LangGraphInterruptEvent { name value }
      ... on CopilotKitLangGraphInterruptEvent { name data { value } }
    }
  }
}
"""


async def send_graphql(
    connection: Connection, path: str, run: RunInput, headers: dict[str, str]
) -> Answer:
    """Send a run to `path` and return its answer."""
    body = {
        "operationName": _OPERATION,
        "query": _DOCUMENT,
        "variables": {"data": _encode_run(run), "properties": dict(run.properties)},
    }
    response = await connection.request(
        "POST",
        path,
        dumps(body),
        {"content-type": "application/json", "accept": "application/json", **headers},
    )
    try:
        fields = loads(response.body)
    except ValueError:
        fields = None
    if not isinstance(fields, dict) or not (fields.get("data") or fields.get("errors")):
        raise read_refusal(response, path)
    for error in as_objects(fields.get("errors")):
        extensions = get_object(error, "extensions")
        code = get_text(extensions, "code") or "UNKNOWN"
        raise ReplyFailed(get_text(error, "message"), code=code, status=response.status)
    return _decode_answer(get_object(fields, "data", _OPERATION))


def _encode_run(run: RunInput) -> dict[str, Any]:
    session = {"agentName": run.agent, "threadId": run.thread_id} if run.agent else None
    return {
        "threadId": run.thread_id,
        "runId": None,
        "metadata": {"requestType": run.request_type},
        "frontend": {"actions": [_encode_action(one) for one in run.actions], "url": run.url},
        "messages": [item for one in run.messages if (item := _encode_message(one)) is not None],
        "context": [{"description": item.description, "value": item.value} for item in run.context],
        "extensions": {},
        "forwardedParameters": {},
        "agentStates": [
            {"agentName": name, "state": to_text(agent.state)} for name, agent in run.agents.items()
        ],
        **({"agentSession": session} if session else {}),
        "metaEvents": [
            {
                "name": "LangGraphInterruptEvent",
                "value": resume.value,
                "response": resume.response or "",
            }
            for resume in run.resume
        ],
    }


def _encode_action(action: Action) -> dict[str, Any]:
    return {
        "name": action.name,
        "description": action.description,
        "jsonSchema": dumps(dict(action.parameters)).decode(),
        "available": action.available,
    }


def _encode_message(message: Message) -> dict[str, Any] | None:
    """Return a message as a v1 client sends it, or `None` for reasoning, state and activities."""
    match message:
        case TextMessage():
            kind = "textMessage"
            fields: dict[str, Any] = {"role": message.role, "content": message.content}
        case ImageMessage():
            kind = "imageMessage"
            fields = {"role": message.role, "format": message.format, "bytes": message.bytes}
        case ActionExecutionMessage():
            kind = "actionExecutionMessage"
            fields = {"name": message.name, "arguments": message.arguments}
        case ResultMessage():
            kind = "resultMessage"
            fields = {
                "actionExecutionId": message.call_id,
                "actionName": message.name,
                "result": message.result,
            }
        case _:
            return None
    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    return {"id": message.id, "createdAt": now, kind: fields}


def _decode_answer(fields: Mapping[str, Any]) -> Answer:
    messages = [*_decode_messages(fields)]
    states = [one for one in messages if isinstance(one, AgentStateMessage)]
    return Answer(
        messages=[one for one in messages if not isinstance(one, AgentStateMessage)],
        state=states[-1].state if states else None,
        interrupts=[_decode_interrupt(one) for one in as_objects(fields.get("metaEvents"))],
        failure=_decode_failure(get_object(fields, "status")),
    )


def _decode_messages(fields: Mapping[str, Any]) -> Iterator[Message]:
    for item in as_objects(fields.get("messages")):
        id = get_text(item, "id")
        match item.get("__typename"):
            case "TextMessageOutput":
                yield TextMessage(id=id, role=item["role"], content=_join(item.get("content")))
            case "ImageMessageOutput":
                yield ImageMessage(
                    id=id, role=item["role"], format=item["format"], bytes=item["bytes"]
                )
            case "ActionExecutionMessageOutput":
                yield ActionExecutionMessage(
                    id=id, name=item["name"], arguments=_join(item.get("arguments")) or "{}"
                )
            case "ResultMessageOutput":
                yield ResultMessage(
                    id=id,
                    call_id=item["actionExecutionId"],
                    name=item["actionName"],
                    result=item["result"],
                )
            case "AgentStateMessageOutput":
                yield AgentStateMessage(
                    id=id,
                    agent=item["agentName"],
                    node=item["nodeName"],
                    state=parse_object(item["state"]),
                    active=item["active"],
                    running=item["running"],
                )
            case _:
                pass  # an unknown message type


def _decode_interrupt(event: Mapping[str, Any]) -> Interrupt:
    """Return an interrupt, which only has a `value`: the agent's own or AG-UI's object."""
    text = get_text(event, "value") or get_text(get_object(event, "data"), "value")
    fields = parse_object(text)
    is_same = bool(fields) and to_text(fields) == text  # the value is sent back unchanged
    return Interrupt(
        interrupt_id=get_text(fields, "id"),
        value=fields if is_same else text,
        message=get_text(fields, "message") or text,
    )


def _decode_failure(status: Mapping[str, Any]) -> ReplyFailed | None:
    if status.get("code") != "Failed":
        return None
    details = get_object(status, "details")
    error = get_object(details, "originalError")
    message = get_text(details, "guardrailsReason") or get_text(details, "description")
    code = get_text(error, "code") or get_text(status, "reason")
    return ReplyFailed(message or "The run failed.", code=code)


def _join(pieces: Any) -> str:
    return "".join(as_text(piece) for piece in as_list(pieces))
