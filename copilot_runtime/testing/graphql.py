"""The client side of GraphQL, which CopilotKit speaks up to 1.10: complete answers, no patches."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from copilot_runtime.api.action import Action
from copilot_runtime.api.events import Interrupt
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    AgentStateMessage,
    ImageMessage,
    Message,
    ResultMessage,
    TextMessage,
)
from copilot_runtime.api.run_input import RunInput
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
from copilot_runtime.testing.answer import Answer, ReplyFailed, read_refusal
from copilot_runtime.testing.connection import Connection

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
