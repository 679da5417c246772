"""JSON schemas for protobuf messages, and their conversion to and from JSON.

https://protobuf.dev/programming-guides/json
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import DecodeError, EncodeError, Message
from google.protobuf.message_factory import GetMessageClass

from copilot_runtime.actions.schema import InvalidArguments
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.jsonvalue import JsonObject

HIDDEN = frozenset({"filter", "llm_token", "resource_id"})
"""Fields that Copilot-LD's tool service sets itself; they are hidden from models."""

VALUE = "value"
"""The single parameter of a method whose request's JSON form is no object."""

_DUMMY = "void"
"""The placeholder field of otherwise empty messages in Copilot-LD's services."""

_MAX_NESTING = 6
_MAX_FIELDS = 500
_MAX_DESCRIPTION = 1000
_MAX_VALUES = 200

_INTEGERS = frozenset(
    {
        *(FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64),
        *(FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_UINT64),
        *(FieldDescriptor.TYPE_SINT32, FieldDescriptor.TYPE_SINT64),
        *(FieldDescriptor.TYPE_FIXED32, FieldDescriptor.TYPE_FIXED64),
        *(FieldDescriptor.TYPE_SFIXED32, FieldDescriptor.TYPE_SFIXED64),
    }
)
_NUMBERS = frozenset({FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE})

_WRAPPERS = {
    **dict.fromkeys(("DoubleValue", "FloatValue"), "number"),
    **dict.fromkeys(("Int64Value", "UInt64Value", "Int32Value", "UInt32Value"), "integer"),
    **dict.fromkeys(("StringValue", "BytesValue"), "string"),
    "BoolValue": "boolean",
}
_GOOGLE_TYPES: Mapping[str, Callable[[], JsonObject]] = {
    "Timestamp": lambda: {"type": "string", "format": "date-time"},
    "Duration": lambda: {"type": "string", "pattern": r"^-?[0-9]+(\.[0-9]{1,9})?s$"},
    "FieldMask": lambda: {"type": "string"},
    "Struct": lambda: {"type": "object"},
    "Value": dict,
    "ListValue": lambda: {"type": "array", "items": {}},
    "Empty": lambda: {"type": "object", "properties": {}},
    "Any": lambda: {"type": "object", "properties": {"@type": {"type": "string"}}},
}


def describe_request(message: Descriptor, comments: Mapping[str, str]) -> JsonObject:
    """Return the schema of a request, without hidden fields."""
    return SchemaBuilder(comments).describe_request(message)


def takes_value(message: Descriptor) -> bool:
    """Return whether the JSON form of a message is no object, as for `StringValue`."""
    google_type = _describe_google_type(message)
    return google_type is not None and google_type.get("type") != "object"


def list_visible_fields(message: Descriptor) -> list[FieldDescriptor]:
    """Return the fields of a request that a model may set."""
    fields = [field for field in message.fields if field.name not in HIDDEN]
    if [field.name for field in fields] == [_DUMMY] and (
        fields[0].type == FieldDescriptor.TYPE_BOOL
    ):
        return []
    return fields


class SchemaBuilder:
    """Builds a schema. Messages that are nested too deep, or too large, become plain objects."""

    def __init__(self, comments: Mapping[str, str]) -> None:
        self._comments = comments
        self._fields_left = _MAX_FIELDS
        self._stack: list[str] = []
        """The messages around the one being described."""

    def describe_request(self, message: Descriptor) -> JsonObject:
        """Return the schema of a request. Each of its fields has a description."""
        if (google_type := _describe_google_type(message)) is not None:
            if not takes_value(message):
                return google_type
            return {"type": "object", "properties": {VALUE: google_type}, "required": [VALUE]}
        self._stack.append(message.full_name)
        fields = list_visible_fields(message)
        properties = {
            field.name: {"description": f"{field.name} field", **self._describe_field(field)}
            for field in fields
        }
        return _build_object(properties, fields)

    def _describe_message(self, message: Descriptor) -> JsonObject:
        if (google_type := _describe_google_type(message)) is not None:
            return google_type
        if message.full_name in self._stack or len(self._stack) >= _MAX_NESTING:
            return {"type": "object"}
        self._stack.append(message.full_name)
        fields = [*message.fields]
        properties = {field.name: self._describe_field(field) for field in fields}
        self._stack.pop()
        return _build_object(properties, fields)

    def _describe_field(self, field: FieldDescriptor) -> JsonObject:
        self._fields_left -= 1
        schema = self._describe_type(field)
        words = self._comments.get(field.full_name, "")[:_MAX_DESCRIPTION]
        if choice := _describe_choice(field):
            words = f"{words} {choice}".lstrip()
        return {"description": words, **schema} if words else schema

    def _describe_type(self, field: FieldDescriptor) -> JsonObject:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            value = field.message_type.fields_by_name["value"]
            return {"type": "object", "additionalProperties": self._describe_single(value)}
        if field.is_repeated:
            return {"type": "array", "items": self._describe_single(field)}
        return self._describe_single(field)

    def _describe_single(self, field: FieldDescriptor) -> JsonObject:
        if field.message_type is not None:
            is_full = self._fields_left < 0
            return {"type": "object"} if is_full else self._describe_message(field.message_type)
        if field.enum_type is not None:
            return _describe_enum(field.enum_type)
        if field.type in _INTEGERS:
            return {"type": "integer"}
        if field.type in _NUMBERS:
            return {"type": "number"}
        if field.type == FieldDescriptor.TYPE_BOOL:
            return {"type": "boolean"}
        if field.type == FieldDescriptor.TYPE_BYTES:
            return {"type": "string", "contentEncoding": "base64"}
        return {"type": "string"}


def _build_object(properties: JsonObject, fields: list[FieldDescriptor]) -> JsonObject:
    schema: JsonObject = {"type": "object", "properties": properties}
    if required := [field.name for field in fields if field.is_required]:  # proto2 only
        schema["required"] = required
    return schema


def _describe_choice(field: FieldDescriptor) -> str:
    """Return a note that names the other fields of a `oneof`."""
    if field.containing_oneof is None or len(field.containing_oneof.fields) < 2:
        return ""
    names = ", ".join(one.name for one in field.containing_oneof.fields)
    return f"(At most one of {names}.)"


def _describe_enum(enum: EnumDescriptor) -> JsonObject:
    if enum.full_name == "google.protobuf.NullValue":
        return {"type": "null"}
    names = [value.name for value in enum.values]
    return {"type": "string", "enum": names} if len(names) <= _MAX_VALUES else {"type": "string"}


def _describe_google_type(message: Descriptor) -> JsonObject | None:
    package, _, name = message.full_name.rpartition(".")
    if package != "google.protobuf":
        return None
    if name in _WRAPPERS:
        encoding = {"contentEncoding": "base64"} if name == "BytesValue" else {}
        return {"type": _WRAPPERS[name], **encoding}
    return _GOOGLE_TYPES[name]() if name in _GOOGLE_TYPES else None


_MAX_WORDS = 500
_MAX_DEPTH = 50


def encode_message(values: Mapping[str, Any], message: Descriptor, pool: DescriptorPool) -> bytes:
    """Return an encoded message. Raises `InvalidArguments` if the fields do not fit its type."""
    body: Any = values.get(VALUE) if takes_value(message) else {**values}
    empty: Message = GetMessageClass(message)()
    try:
        filled = ParseDict(body, empty, descriptor_pool=pool, max_recursion_depth=_MAX_DEPTH)
        return filled.SerializeToString(deterministic=True)
    except (ParseError, EncodeError, TypeError, ValueError, AttributeError) as error:
        words = " ".join(str(error).split())[:_MAX_WORDS]
        raise InvalidArguments(f"The arguments are no {message.full_name}: {words}") from error


def decode_message(data: bytes, message: Descriptor, pool: DescriptorPool) -> Any:
    """Return the JSON form of a message, including fields with default values.

    Raises `CopilotError` if the bytes are no such message.
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
            f"The service's response is not a {message.full_name}: {words}.",
            hint="Check that the descriptors match the server.",
        ) from error


def fit_values(values: Mapping[str, Any], message: Descriptor) -> JsonObject:
    """Return configured values, with numbers converted to strings for string fields.

    Unknown fields are dropped, as in Copilot-LD.
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
