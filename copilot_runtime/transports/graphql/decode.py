"""Decode the v1 client's input to a `RunInput`."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from copilot_runtime.actions.sources import parse_frontend_action
from copilot_runtime.api.action import Action
from copilot_runtime.api.messages import (
    ActionExecutionMessage,
    AgentStateMessage,
    ImageMessage,
    Message,
    ResultMessage,
    TextMessage,
    drop_empty_results,
    new_id,
)
from copilot_runtime.api.run_input import (
    AgentInput,
    ContextItem,
    GuardrailRules,
    Parameters,
    Resume,
    RunInput,
    new_run_input,
)
from copilot_runtime.base.errors import LimitExceeded
from copilot_runtime.base.jsontext import loads
from copilot_runtime.base.jsonvalue import as_object, parse_text
from copilot_runtime.transports.body import has_more_values
from copilot_runtime.transports.graphql.context import Context
from copilot_runtime.transports.graphql.inputs import (
    ActionInput,
    AgentStateInput,
    CloudInput,
    ForwardedParametersInput,
    GenerateCopilotResponseInput,
    MessageInput,
)
from copilot_runtime.transports.graphql.outputs import ASSISTANT
from copilot_runtime.transports.parameters import (
    apply_forwarded_parameters,
    check_count,
    check_length,
)

logger = logging.getLogger(__name__)


def run_input(
    context: Context,
    data: GenerateCopilotResponseInput,
    properties: Mapping[str, Any] | None,
    *,
    detached: bool = False,
) -> RunInput:
    """Decode the request of a run. Raises `LimitExceeded` if it exceeds a limit of the settings."""
    settings, caller = context.services.settings, context.caller
    max_values = settings.max_values
    check_length(data.messages, settings.max_messages)
    _check_counts(data, settings.max_items)
    session = data.agent_session or None
    request_type = data.metadata.request_type.value if data.metadata.request_type else "Chat"
    return new_run_input(
        thread_id=data.thread_id or (session and session.thread_id) or str(uuid4()),
        run_id=new_id(),
        messages=drop_empty_results(
            [
                message
                for item in data.messages
                if (message := _decode_message(item, max_values)) is not None
            ]
        ),
        agent=session.agent_name if session else None,
        node=(session.node_name or None) if session else None,
        actions=_decode_actions(data.frontend.actions, max_values),
        context=[ContextItem(item.description, item.value) for item in data.context or ()],
        parameters=apply_forwarded_parameters(
            _decode_parameters(data.forwarded_parameters or None), properties or {}
        ),
        properties=caller.merge_properties(properties),
        headers=caller.headers,
        agents=_decode_agents(data, max_values),
        resume=[_decode_answer(item.value, item.response) for item in data.meta_events or ()],
        rules=_decode_rules(data.cloud or None),
        extensions=_decode_extensions(data),
        url=data.frontend.url or None,
        request_type=request_type,
        operation="subscription" if detached else "generateCopilotResponse",
        follow_up="client",
        detached=detached,
        user=caller.user,
        identity=caller.identity,
        parent=caller.parent,
        persist=bool(data.thread_id) and request_type == "Chat",
    )


def _decode_answer(value: str, response: str | None) -> Resume:
    """Decode an answer to an interrupt. Its payload is the text, or the JSON in it, as on Node."""
    return Resume(value, response or None, payload=parse_text(response or None))


def _check_counts(data: GenerateCopilotResponseInput, most: int) -> None:
    """Raise `LimitExceeded` if the request has more items of a kind than the settings allow."""
    check_count(len(data.frontend.actions), most, "actions")
    check_count(len(data.context or ()), most, "items of context")
    check_count(len(data.agent_states or ()), most, "states of agents")
    check_count(len(data.meta_events or ()), most, "answers to interrupts")


def _decode_message(item: MessageInput, max_values: int) -> Message | None:
    """Decode one message; return `None` for one that is malformed, as Node does."""
    if text := item.text_message:
        return TextMessage(
            id=item.id,
            role=text.role.value,
            content=text.content,
            parent_id=text.parent_message_id or None,
        )
    if call := item.action_execution_message:
        _check_values(call.arguments, "The arguments of a call", max_values)
        if not _is_json(call.arguments):
            logger.warning("Skipped a call of %r: its arguments are not JSON.", call.name)
            return None
        return ActionExecutionMessage(
            id=item.id,
            name=call.name,
            arguments=call.arguments,
            parent_id=call.parent_message_id or None,
        )
    if result := item.result_message:
        return ResultMessage(
            id=item.id,
            call_id=result.action_execution_id,
            name=result.action_name,
            result=result.result,
        )
    if image := item.image_message:
        return ImageMessage(
            id=item.id,
            role=image.role.value,
            format=image.format,
            bytes=image.bytes,
            parent_id=image.parent_message_id or None,
        )
    if state := item.agent_state_message:
        _check_values(state.state, "The state of an agent", max_values)
        return AgentStateMessage(
            id=item.id,
            agent=state.agent_name,
            state=_decode_object(state.state, f"the state of agent {state.agent_name!r}"),
            node=state.node_name,
            thread_id=state.thread_id,
            run_id=state.run_id,
            active=state.active,
            running=state.running,
        )
    return None


def _decode_actions(items: Sequence[ActionInput], max_values: int) -> list[Action]:
    for item in items:
        _check_values(item.json_schema, "The schema of an action", max_values)
    return [
        parse_frontend_action(
            item.name,
            item.description,
            item.json_schema,
            item.available.value if item.available else "enabled",
        )
        for item in items
    ]


def _decode_parameters(item: ForwardedParametersInput | None) -> Parameters:
    if item is None or item == _UNSET_PARAMETERS:
        return _DEFAULT_PARAMETERS
    return Parameters(
        model=item.model or None,
        temperature=_number(item.temperature),
        max_tokens=None if (limit := _number(item.max_tokens)) is None else int(limit),
        stop=item.stop or None,
        tool_choice=item.tool_choice or None,
        tool_choice_name=item.tool_choice_function_name or None,
    )


_DEFAULT_PARAMETERS = Parameters()
_UNSET_PARAMETERS = ForwardedParametersInput()
"""An empty object, which clients send with most chats."""


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) else None  # zero is a valid value


def _decode_agents(data: GenerateCopilotResponseInput, max_values: int) -> dict[str, AgentInput]:
    states: Sequence[AgentStateInput] = data.agent_states or (
        [data.agent_state] if data.agent_state else []
    )
    for item in states:
        _check_values(item.state, "The state of an agent", max_values)
        _check_values(item.config or "", "The config of an agent", max_values)
    return {
        item.agent_name: AgentInput(
            state=_decode_object(item.state, f"the state of agent {item.agent_name!r}"),
            config=_decode_object(item.config or "", f"the config of agent {item.agent_name!r}"),
        )
        for item in states
    }


def _decode_rules(cloud: CloudInput | None) -> GuardrailRules | None:
    if cloud is None or not cloud.guardrails:
        return None
    rules = cloud.guardrails.input_validation_rules
    return GuardrailRules(allow=rules.allow_list or (), deny=rules.deny_list or ())


def _decode_extensions(data: GenerateCopilotResponseInput) -> dict[str, Any]:
    assistant = data.extensions.openai_assistant_api if data.extensions else None
    if not assistant:
        return {}
    return {
        ASSISTANT: {
            "runId": assistant.run_id or None,
            "threadId": assistant.thread_id or None,
        }
    }


def _check_values(text: str, what: str, most: int) -> None:
    """Raise `LimitExceeded` for JSON text with more values than the settings allow."""
    if len(text) > most and has_more_values(text.encode(errors="replace"), most):
        error = LimitExceeded(
            f"{what} has more than {most} values.", hint="Raise max_values in the settings."
        )
        logger.warning("Refused a request: %s (%s)", error.message, error.hint)
        raise error


def _is_json(text: str) -> bool:
    try:
        loads(text.encode(errors="replace") or b"{}")
    except ValueError:
        return False
    return True


def _decode_object(text: str, what: str) -> dict[str, Any]:
    """Decode a JSON object that the client sends as a string; anything else counts as empty."""
    if not text:
        return {}
    try:
        return as_object(loads(text.encode(errors="replace")))
    except ValueError:
        logger.warning("Ignored %s: it is not JSON.", what)
        return {}
