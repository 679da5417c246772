"""The interfaces of transports and request policies, and the lookup of configured transports."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from copilot_runtime.api.registry import Parts, Registry
from copilot_runtime.base.errors import RUN_FAILED, ConfigurationFailed, CopilotError, LimitExceeded
from copilot_runtime.config.settings import CoreSettings
from copilot_runtime.runtime.conversations import Conversations
from copilot_runtime.telemetry.telemetry import NO_TELEMETRY, Telemetry
from copilot_runtime.transports import TRANSPORTS
from copilot_runtime.transports.body import BadRequest
from copilot_runtime.transports.program_runs import ProgramRuns
from copilot_runtime.transports.request import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The parts of a runtime that its transports use."""

    runs: Conversations
    """Starts, stops and follows runs; also has the threads and the agents."""
    program_runs: ProgramRuns
    """Starts runs for clients that keep no threads."""
    settings: CoreSettings
    telemetry: Telemetry = NO_TELEMETRY
    serves_chat: bool = True
    """`True` if the plain chat is available as the agent `default`, unless an agent has that name.
    """
    parts: Parts = field(default_factory=Parts)
    """The parts that extensions provide, by type."""
    schema: tuple[str, ...] = ()
    """Modules whose `ROOTS` are added to the GraphQL schema."""
    info: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Fields that extensions add to `/info` of AG-UI."""


class Refusal(Exception):
    """A refused request: the JSON response, or the `close` code and reason of a WebSocket."""

    def __init__(
        self,
        status: int,
        body: Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
        *,
        close: tuple[int, str] = (1011, ""),
    ) -> None:
        super().__init__(str(body.get("message") or body.get("error")))
        self.status = status
        self.body = body
        self.headers = headers or {}
        self.close = close


def check_method(request: Request, *methods: str) -> None:
    """Raise `Refusal` (405) if a request has another method."""
    if request.method not in methods:
        raise Refusal(405, {"error": "Method not allowed"}, {"allow": ", ".join(methods)})


class Transport:
    """A client protocol: GraphQL, AG-UI, or one of your own. Subclass it.

    The router passes a request to a transport if its path is one of `paths` and `accepts` returns
    `True`. By then the caller is authenticated, CORS preflights have been answered, and cross-site
    requests that could use a person's credentials have been refused. `__call__` decodes the request
    into a `RunInput`, starts it, encodes the events of `follow`, and stops the run when the client
    disconnects.

    An error that `__call__` raises before it has responded becomes a JSON response: a `Refusal` as
    it is, and every other error by `refuse`. `ClientGone` and `WriteTimeout` end the request
    silently. One object serves all requests concurrently, and must not keep per-request state.
    """

    paths: Sequence[str] = ()
    """Paths below the runtime's URL: `""` is the URL itself, `"ask"` one path,
    `"threads/{rest:path}"` many."""

    root_paths: Sequence[str] = ()
    """The `paths` that an application made by `app()` also serves at its root."""

    for_programs: bool = False
    """`True` if web pages are refused, unless `cors_origins` contains their origin."""

    socket_paths: Sequence[str] = ()
    """The `paths` that accept WebSockets, in addition to the URL itself."""

    has_own_auth: bool = False
    """`True` if the transport authenticates requests itself, at paths without parameters that no
    other transport has: `authenticate` is not called then, and the caller is anonymous."""

    def find_scope(self, request: Request) -> str:  # noqa: ARG002  # may be overridden
        """Return the permission that a request requires, or an empty string for none.

        A transport that learns the operation from the body checks `request.caller.identity` itself.
        The permission to start a run is checked when the run starts.
        """
        return ""

    async def accepts(self, request: Request) -> bool:
        """Return `True` if this request, to one of the paths, is for this transport."""
        return not request.is_websocket

    async def __call__(self, request: Request) -> None:
        """Respond to a request."""
        raise NotImplementedError

    async def limit(self, request: Request, error: LimitExceeded) -> None:  # noqa: ARG002
        """Respond to a request over a limit with the message of `error`: a 429 by default."""
        raise error

    async def show(self, request: Request, refusal: Refusal) -> Refusal:  # noqa: ARG002
        """Return the refusal for an unauthenticated client, in the form that its protocol displays.

        By default, the refusal is returned unchanged.
        """
        return refusal

    def routes(self, path: str, router: ASGIApp) -> Sequence[BaseRoute]:  # noqa: ARG002  # may be overridden
        """Return typed routes for some of `paths`, which `/docs` then describes; empty by default.

        `path` is the runtime's URL path, and `router` handles the requests that a route passes on.
        """
        return ()

    def refuse(self, error: Exception) -> Refusal:
        """Return the refusal for an error.

        `BadRequest` and `CopilotError` have a status and a message; every other error is a 500
        without details.
        """
        match error:
            case BadRequest(status=status, message=message, code=code):
                return Refusal(status, error_body("invalid_request", message, code), error.headers)
            case CopilotError(status_code=status, public=message, code=code):
                return Refusal(status, error_body(code.lower(), message, code))
            case _:
                body = error_body("internal_error", RUN_FAILED.message, RUN_FAILED.code)
                return Refusal(500, body)

    async def open(self) -> None:
        """Allocate resources when the application starts."""

    async def aclose(self) -> None:
        """Release the resources of `open` when the application stops."""


def find_data_scope(request: Request) -> str:
    """Return the permission for a data endpoint: to read it, or to change it."""
    return "data:read" if request.method in ("GET", "HEAD") else "data:write"


def error_body(kind: str, message: str, code: str) -> Mapping[str, Any]:
    """Return an error body that combines the formats of AG-UI and GraphQL."""
    errors = [{"message": message, "extensions": {"code": code}}]
    return {"error": kind, "message": message, "errors": errors}


TransportLike: TypeAlias = "str | Transport | Callable[[Services], Transport]"
"""A name in the table of transports, a transport, or a factory (such as a class) that takes
`Services`."""


def build_transports(items: Sequence[TransportLike], services: Services) -> Sequence[Transport]:
    """Return the transports for names, factories and objects. Raises `ConfigurationFailed`."""
    if not items:
        raise ConfigurationFailed(
            "The setting 'transports' is empty: no request would be answered.",
            hint="Leave it out for agui and graphql, or name those that you need.",
        )
    table = Registry("copilot_runtime.transports", TRANSPORTS)
    return [_build(table[item] if isinstance(item, str) else item, services) for item in items]


def build_endpoints(
    makers: Sequence[Callable[[Services], Any]], services: Services
) -> Sequence[Transport]:
    """Return the transports of extensions that do not carry chats."""
    return [_build(make, services) for make in makers]


def _build(item: Any, services: Services) -> Transport:
    transport: Any = item if isinstance(item, Transport) else item(services)
    if not isinstance(transport, Transport):
        raise ConfigurationFailed(
            f"{type(transport).__name__} is no transport.",
            hint="Subclass copilot_runtime.transports.transport.Transport.",
        )
    return transport


class RequestPolicy:
    """Observes every request to a transport. Override the methods you need."""

    async def before(self, request: Request) -> None:
        """Called once the caller is authenticated. Raise `LimitExceeded` to refuse the request."""

    def after(self, request: Request, error: BaseException | None) -> None:
        """Called after a response, or after a refusal or failure with `error`."""
