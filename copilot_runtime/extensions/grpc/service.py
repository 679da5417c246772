"""What a service is, and what its methods get of a call."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.types import Scope

from copilot_runtime.api.caller import Caller
from copilot_runtime.base.errors import ConfigurationFailed, Misuse
from copilot_runtime.transports.transport import Services

if TYPE_CHECKING:
    from google.protobuf.descriptor import ServiceDescriptor
    from google.protobuf.message import Message

    from copilot_runtime.extensions.knowledge import Knowledge


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Who calls, and how. `scope` and `headers` are the call as ASGI would have it."""

    caller: Caller
    scope: Scope
    headers: Mapping[str, str]
    is_closing: Callable[[], bool]
    """Whether the server ends: a stream without an end of its own ends then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcMethod:
    """A method: a function of its request and the `Call`.

    It returns the answer, or is an async generator of answers where the `.proto` says `stream`.
    `scope` is what a caller needs for it, and `starts_run` whether a run is written down in the
    audit log in its place. `is_traced` is whether its calls have spans.
    """

    run: "Callable[[Any, Call], Awaitable[Message] | AsyncGenerator[Message, None]]"
    scope: str = ""
    starts_run: bool = False
    is_traced: bool = True


class RpcService(ABC):
    """A service of a `.proto`. Subclass it; it is made of `Services` when the server starts.

    What a method raises becomes a status: a `CopilotError` by its `status_code`, with its message;
    all else is INTERNAL without details. One object serves all calls at once.
    """

    descriptor: "ServiceDescriptor"
    """As generated: `shop_pb2.DESCRIPTOR.services_by_name["Shop"]`."""

    @abstractmethod
    def __init__(self, services: Services) -> None:
        """Raise `ConfigurationFailed` for what the runtime does not have."""

    @abstractmethod
    def list_methods(self) -> Mapping[str, RpcMethod]:
        """Return the methods by their names; those that are left out are UNIMPLEMENTED."""


def require_knowledge(services: Services, name: str) -> "Knowledge":
    """Return the knowledge of a runtime. Raises `ConfigurationFailed` if it has none."""
    if services.knowledge is None:
        raise ConfigurationFailed(
            f"grpc.services names {name!r}, and there is no knowledge.",
            hint="Set knowledge.storage or knowledge.sources, or give the runtime a Knowledge.",
        )
    return services.knowledge


def check_number(name: str, value: int, most: int, *, least: int = 0) -> int:
    """Return a number that is within its limits. Raises `Misuse`."""
    if not least <= value <= most:
        raise Misuse(f"{name} is a number from {least} to {most}, and this is {value}.")
    return value


def check_text(name: str, text: str, most: int = 10_000) -> str:
    """Return a text that is not too long. Raises `Misuse`."""
    if len(text) > most:
        raise Misuse(f"{name} has {len(text)} characters; {most} are allowed.")
    return text
