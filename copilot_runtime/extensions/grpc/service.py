"""The base class of services, the context of a call, and JSON values as `Struct`."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.struct_pb2 import Struct, Value
from starlette.types import Scope

from copilot_runtime.api.identity import Caller
from copilot_runtime.base.errors import ConfigurationFailed, Misuse
from copilot_runtime.base.jsontext import dumps, loads
from copilot_runtime.extensions.knowledge import Knowledge
from copilot_runtime.transports.transport import Services

if TYPE_CHECKING:
    from google.protobuf.descriptor import ServiceDescriptor
    from google.protobuf.message import Message

    from copilot_runtime.extensions.knowledge import Knowledge


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The context of a call: the caller, and the call's `scope` and `headers` as in ASGI."""

    caller: Caller
    scope: Scope
    headers: Mapping[str, str]
    is_closing: Callable[[], bool]
    """Returns True when the server shuts down: endless streams must end then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcMethod:
    """A method: a function of its request and the `Call`.

    It returns the response, or is an async generator of responses if the `.proto` declares
    `stream`. `scope` is the scope that callers need. `starts_run` is True if the audit log records
    a run instead of the call. `is_traced` is True if calls have spans.
    """

    run: "Callable[[Any, Call], Awaitable[Message] | AsyncGenerator[Message, None]]"
    scope: str = ""
    starts_run: bool = False
    is_traced: bool = True


class RpcService(ABC):
    """The base class of services of a `.proto`, built from `Services` when the server starts.

    Errors become statuses: a `CopilotError` by its `status_code`, with its message; other
    exceptions INTERNAL, without details. One object serves all calls concurrently.
    """

    descriptor: "ServiceDescriptor"
    """The generated descriptor: `shop_pb2.DESCRIPTOR.services_by_name["Shop"]`."""

    @abstractmethod
    def __init__(self, services: Services) -> None:
        """Raise `ConfigurationFailed` if the runtime lacks a required part."""

    @abstractmethod
    def list_methods(self) -> Mapping[str, RpcMethod]:
        """Return the methods by name; missing ones are UNIMPLEMENTED."""


MOST_RESULTS = 100
MOST_TOKENS = 20_000
"""Maxima of one search, by vectors or in the graph."""


def require_knowledge(services: Services, name: str) -> "Knowledge":
    """Return the knowledge of a runtime. Raises `ConfigurationFailed` if it has none."""
    knowledge = services.parts.find(Knowledge)
    if knowledge is None:
        raise ConfigurationFailed(
            f"grpc.services names {name!r}, and there is no knowledge.",
            hint="Set knowledge.storage or knowledge.sources, or give the runtime a Knowledge.",
        )
    return knowledge


def check_number(name: str, value: int, most: int, *, least: int = 0) -> int:
    """Return a number within its limits. Raises `Misuse`."""
    if not least <= value <= most:
        raise Misuse(f"{name} is a number from {least} to {most}, and this is {value}.")
    return value


def check_text(name: str, text: str, most: int = 10_000) -> str:
    """Return a text that is present and not too long. Raises `Misuse`."""
    if len(text) > most:
        raise Misuse(f"{name} has {len(text)} characters; {most} are allowed.")
    return text


_MAX_DEPTH = 90
_EXACT = 2**53
"""The largest integer up to which all integers are exact as doubles."""


def read_struct(struct: Struct) -> dict[str, Any]:
    """Return an object, with whole numbers as integers."""
    return cast("dict[str, Any]", _restore(MessageToDict(struct)))


def build_struct(value: Mapping[str, Any]) -> Struct:
    """Return an object as a `Struct`; values that are too deep or no JSON become strings."""
    struct = Struct()
    for name, one in value.items():
        struct.fields[name].CopyFrom(_build(one))
    return struct


def _build(value: Any) -> Value:
    if isinstance(value, int) and abs(value) > _EXACT:
        return Value(string_value=str(value))
    try:
        return ParseDict(loads(dumps(value)), Value(), max_recursion_depth=_MAX_DEPTH)
    except (ParseError, ValueError, TypeError, RecursionError):
        return Value(string_value=str(value))


def _restore(value: Any) -> Any:
    match value:
        case float() if value.is_integer() and abs(value) <= _EXACT:
            return int(value)
        case dict():
            return {name: _restore(one) for name, one in value.items()}
        case list():
            return [_restore(one) for one in value]
        case _:
            return value
