"""Arguments as a message, and a message as the value of a tool."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import DecodeError, EncodeError, Message
from google.protobuf.message_factory import GetMessageClass

from copilot_runtime.actions.schema import InvalidArguments
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.extensions.tools.catalog.grpc.schema import VALUE, takes_value

_MAX_WORDS = 500
_MAX_DEPTH = 50


def encode_message(values: Mapping[str, Any], message: Descriptor, pool: DescriptorPool) -> bytes:
    """Return a message with these fields. Raises `InvalidArguments` for what it cannot have."""
    body: Any = values.get(VALUE) if takes_value(message) else {**values}
    empty: Message = GetMessageClass(message)()
    try:
        filled = ParseDict(body, empty, descriptor_pool=pool, max_recursion_depth=_MAX_DEPTH)
        return filled.SerializeToString(deterministic=True)
    except (ParseError, EncodeError, TypeError, ValueError, AttributeError) as error:
        words = " ".join(str(error).split())[:_MAX_WORDS]
        raise InvalidArguments(f"The arguments are no {message.full_name}: {words}") from error


def decode_message(data: bytes, message: Descriptor, pool: DescriptorPool) -> Any:
    """Return the JSON form of a message, with fields that have their default value.

    Raises `CopilotError` for bytes that are no such message.
    """
    try:
        found: Message = GetMessageClass(message).FromString(data)
        if data and not found.ListFields():
            raise DecodeError("none of its fields is one that the message has")
        return MessageToDict(
            found,
            preserving_proto_field_name=True,
            always_print_fields_with_no_presence=True,
            descriptor_pool=pool,
        )
    except (DecodeError, TypeError, ValueError, RecursionError) as error:
        words = " ".join(str(error).split())[:_MAX_WORDS]
        raise CopilotError(
            f"The service answered with what is no {message.full_name}: {words}.",
            hint="Is the description that was read that of the server?",
        ) from error


def fit_values(values: Mapping[str, Any], message: Descriptor) -> JsonObject:
    """Return what an operator wrote with numbers as text where the message wants a text.

    A field that the message does not have is left out, as Copilot-LD does.
    """
    fields = message.fields_by_name
    return {name: _fit(value, fields[name]) for name, value in values.items() if name in fields}


def _fit(value: Any, field: FieldDescriptor) -> Any:
    if isinstance(value, list | tuple) and field.is_repeated:
        return [_fit_one(one, field) for one in cast("Sequence[Any]", value)]
    return _fit_one(value, field)


def _fit_one(value: Any, field: FieldDescriptor) -> Any:
    if isinstance(value, Mapping):
        nested = field.message_type
        if (
            nested is None
            or nested.GetOptions().map_entry
            or nested.full_name.startswith("google.protobuf.")
        ):
            return value
        return fit_values(cast("Mapping[str, Any]", value), nested)
    if field.type == FieldDescriptor.TYPE_STRING and isinstance(value, bool):
        return "true" if value else "false"
    if field.type == FieldDescriptor.TYPE_STRING and isinstance(value, int | float):
        return str(value)
    return value
