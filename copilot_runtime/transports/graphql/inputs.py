"""The input types of the v1 schema, declared once for two readers.

Strawberry builds the schema from them, and pydantic decodes a client's variables to them
(`read_input`), thirty times faster than graphql-core. Input that pydantic rejects is passed to
graphql-core, which reports the error.

Absent and null are equivalent everywhere: clients send `runId: null` or omit it.
"""

from collections.abc import Mapping
from dataclasses import field
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

import orjson
import strawberry
from strawberry import UNSET
from strawberry.types import get_object_definition

from copilot_runtime.transports.graphql.types import (
    ActionInputAvailability,
    CopilotRequestType,
    DateTimeISO,
    MessageRole,
    MetaEventName,
    graphql_name,
)
from copilot_runtime.transports.parameters import check_count, check_length

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")


def _input(cls: type[T]) -> type[T]:
    """Declare a GraphQL input type that pydantic validates as strictly as GraphQL would."""
    cls.__pydantic_config__ = {  # pyright: ignore[reportAttributeAccessIssue]  # pydantic's hook
        "alias_generator": graphql_name,
        "extra": "forbid",
        "strict": True,
    }
    return strawberry.input(cls)


def _refine(cls: type, name: str, **attributes: Any) -> None:
    """Set attributes of a field, which pydantic would not accept in the class body."""
    definition = get_object_definition(cls, strict=True)
    found = next(item for item in definition.fields if item.python_name == name)
    for attribute, value in attributes.items():
        setattr(found, attribute, value)


@_input
class TextMessageInput:
    content: str
    parent_message_id: str | None = UNSET
    role: MessageRole


@_input
class ActionExecutionMessageInput:
    name: str
    arguments: str
    parent_message_id: str | None = UNSET
    scope: str | None = UNSET


_refine(
    ActionExecutionMessageInput,
    "scope",
    deprecation_reason="This field will be removed in a future version",
)


@_input
class ResultMessageInput:
    action_execution_id: str
    action_name: str
    parent_message_id: str | None = UNSET
    result: str


@_input
class AgentStateMessageInput:
    thread_id: str
    agent_name: str
    role: MessageRole
    state: str
    running: bool
    node_name: str
    run_id: str
    active: bool


@_input
class ImageMessageInput:
    format: str
    bytes: str
    parent_message_id: str | None = UNSET
    role: MessageRole


@_input
class MessageInput:
    id: str
    created_at: DateTimeISO
    text_message: TextMessageInput | None = UNSET
    action_execution_message: ActionExecutionMessageInput | None = UNSET
    result_message: ResultMessageInput | None = UNSET
    agent_state_message: AgentStateMessageInput | None = UNSET
    image_message: ImageMessageInput | None = UNSET


@_input
class ActionInput:
    name: str
    description: str
    json_schema: str
    available: ActionInputAvailability | None = UNSET


@_input
class FrontendInput:
    to_deprecate_full_context: str | None = UNSET
    actions: list[ActionInput]
    url: str | None = UNSET


@_input
class GuardrailsRuleInput:
    allow_list: list[str] | None = field(default_factory=list[str])
    deny_list: list[str] | None = field(default_factory=list[str])


_refine(GuardrailsRuleInput, "allow_list", default_value=[])
_refine(GuardrailsRuleInput, "deny_list", default_value=[])


@_input
class GuardrailsInput:
    input_validation_rules: GuardrailsRuleInput


@_input
class CloudInput:
    guardrails: GuardrailsInput | None = UNSET


@_input
class ForwardedParametersInput:
    model: str | None = UNSET
    max_tokens: float | None = UNSET
    stop: list[str] | None = UNSET
    tool_choice: str | None = UNSET
    tool_choice_function_name: str | None = UNSET
    temperature: float | None = UNSET


@_input
class AgentSessionInput:
    agent_name: str
    thread_id: str | None = UNSET
    node_name: str | None = UNSET


@_input
class AgentStateInput:
    agent_name: str
    state: str
    config: str | None = UNSET


@_input
class OpenAIApiAssistantAPIInput:
    run_id: str | None = UNSET
    thread_id: str | None = UNSET


@_input
class ExtensionsInput:
    openai_assistant_api: OpenAIApiAssistantAPIInput | None = UNSET


@_input
class MetaEventInput:
    name: MetaEventName
    value: str
    response: str | None = UNSET
    messages: list[MessageInput] | None = UNSET


@_input
class CopilotContextInput:
    description: str
    value: str


@_input
class GenerateCopilotResponseMetadataInput:
    request_type: CopilotRequestType | None = UNSET


@_input
class GenerateCopilotResponseInput:
    metadata: GenerateCopilotResponseMetadataInput
    thread_id: str | None = UNSET
    run_id: str | None = UNSET
    messages: list[MessageInput]
    frontend: FrontendInput
    cloud: CloudInput | None = UNSET
    forwarded_parameters: ForwardedParametersInput | None = UNSET
    agent_session: AgentSessionInput | None = UNSET
    agent_state: AgentStateInput | None = UNSET
    agent_states: list[AgentStateInput] | None = UNSET
    extensions: ExtensionsInput | None = UNSET
    meta_events: list[MetaEventInput] | None = UNSET
    context: list[CopilotContextInput] | None = UNSET


@_input
class LoadAgentStateInput:
    thread_id: str
    agent_name: str


def check_inputs(inputs: Mapping[str, Any], *, max_messages: int, max_items: int) -> None:
    """Raise `LimitExceeded` for more messages or other items than allowed.

    Without it, graphql-core coerces 15 MB of invalid messages for 11 seconds.
    """
    found = [*inputs.items()]
    while found:
        name, value = found.pop()
        if isinstance(value, dict):
            fields = cast("dict[str, Any]", value)
            if len(fields) > _MOST_FIELDS:
                what = f"fields in {name[:40]!r}"
                check_count(len(fields), _MOST_FIELDS, what, setting=None)
            found += [it for it in fields.items() if isinstance(it[1], _NESTED)]
        elif isinstance(value, list):
            items = cast("list[Any]", value)
            if name == "messages":
                check_length(items, max_messages)
            elif len(items) > max_items:
                check_count(len(items), max_items, f"items in {name[:40]!r}")
            found += [(name, item) for item in items if isinstance(item, _NESTED)]


_NESTED = (dict, list)
_MOST_FIELDS = 100
"""Limit of the fields of an input; the largest input type has thirteen."""


def read_input(value: Any) -> GenerateCopilotResponseInput | None:
    """Decode the `data` variable; None if it does not match the schema."""
    try:
        return _reader().validate_json(orjson.dumps(value))
    except (ValueError, TypeError):  # from pydantic or orjson; graphql-core reports it
        return None


@cache
def _reader() -> "TypeAdapter[GenerateCopilotResponseInput]":
    from pydantic import TypeAdapter  # building it takes time, so it is done on first use

    return TypeAdapter(GenerateCopilotResponseInput)
