"""What a transport is, what it is made with, and how the ones that settings name are found."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from copilot_runtime.api.parts import Parts
from copilot_runtime.api.registry import Registry
from copilot_runtime.base.errors import RUN_FAILED, ConfigurationFailed, CopilotError, LimitExceeded
from copilot_runtime.config.settings import Settings
from copilot_runtime.runtime.conversations import Conversations
from copilot_runtime.telemetry.telemetry import NO_TELEMETRY, Telemetry
from copilot_runtime.transports import TRANSPORTS
from copilot_runtime.transports.body import BadRequest
from copilot_runtime.transports.program_runs import ProgramRuns
from copilot_runtime.transports.request import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The parts of one runtime that its transports use."""

    runs: Conversations
    """Starts, stops and follows runs, and has the threads and the agents."""
    program_runs: ProgramRuns
    """Starts runs for clients that keep no threads."""
    settings: Settings
    telemetry: Telemetry = NO_TELEMETRY
    serves_chat: bool = True
    """Whether the plain chat is the agent `default`, where no other agent has that name."""
    parts: Parts = field(default_factory=Parts)
    """What extensions offer, by its type."""
    schema: tuple[str, ...] = ()
    """Modules whose `ROOTS` are added to the GraphQL schema."""
    info: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Fields that extensions add to `/info` of AG-UI."""


class Refusal(Exception):
    """The JSON that answers a request that is not served; a WebSocket is closed with `close`."""

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
    """Raise `Refusal` (405) for a request by another method."""
    if request.method not in methods:
        raise Refusal(405, {"error": "Method not allowed"}, {"allow": ", ".join(methods)})


class Transport:
    """One protocol of clients: GraphQL, AG-UI, or one of your own. Subclass it.

    The router sends a request here if its path is one of `paths` and `accepts` returns true. By
    then the caller is known, a preflight has been answered, and a page of a foreign origin that
    could act in a person's name has been refused. `__call__` decodes the request into a `RunInput`,
    starts it, encodes what `follow` yields, and stops the run when the client has left.

    What `__call__` raises before it has answered becomes an answer in JSON: a `Refusal` as it is,
    and every other error by `refuse`.
    `ClientGone` and `WriteTimeout` end the request silently. One object serves all requests at
    once, and keeps nothing of any of them.
    """

    paths: Sequence[str] = ()
    """Below the URL: `""` is the URL itself, `"ask"` is one path, `"threads/{rest:path}"` many."""

    root_paths: Sequence[str] = ()
    """Those of `paths` that an application made by `app()` also answers at its root."""

    for_programs: bool = False
    """Whether pages of browsers are refused, unless `cors_origins` names their origin."""

    socket_paths: Sequence[str] = ()
    """Those of `paths` that WebSockets are at, beside the URL itself."""

    has_own_auth: bool = False
    """Whether it decides itself who may ask, at paths without parameters that are only its own:
    `authenticate` is not called then, and the caller is nobody."""

    def find_scope(self, request: Request) -> str:  # noqa: ARG002  # may be overridden
        """Return the scope that somebody needs for a request; an empty one is for everybody.

        A transport that learns from the body what is asked for checks that itself, by
        `request.caller.identity`. To start a run is checked where runs start.
        """
        return ""

    async def accepts(self, request: Request) -> bool:
        """Return whether this request, to one of the paths, is for this transport."""
        return not request.is_websocket

    async def __call__(self, request: Request) -> None:
        """Answer one request."""
        raise NotImplementedError

    async def limit(self, request: Request, error: LimitExceeded) -> None:  # noqa: ARG002
        """Answer a request that is one too many, by the words of `error`: a 429 by default."""
        raise error

    async def show(self, request: Request, refusal: Refusal) -> Refusal:  # noqa: ARG002
        """Return the answer to somebody who is not let in; nothing is known of who that is.

        For clients that show it only in a form of their own. By default it is the refusal.
        """
        return refusal

    def routes(self, path: str, router: ASGIApp) -> Sequence[BaseRoute]:  # noqa: ARG002  # may be overridden
        """Return typed routes for some of `paths`, which `/docs` then describes; none by default.

        `path` is the URL, and `router` answers whatever a route passes on to it.
        """
        return ()

    def refuse(self, error: Exception) -> Refusal:
        """Return the answer to an error.

        `BadRequest` and `CopilotError` have a status and a message; everything else is a 500
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
        """Get ready when the application starts."""

    async def aclose(self) -> None:
        """End what `open` began, when the application stops."""


def find_data_scope(request: Request) -> str:
    """Return the scope for what only has data: to read it, or to change it."""
    return "data:read" if request.method in ("GET", "HEAD") else "data:write"


def error_body(kind: str, message: str, code: str) -> Mapping[str, Any]:
    """Return an error in the forms of AG-UI and of GraphQL: clients of both show its message."""
    errors = [{"message": message, "extensions": {"code": code}}]
    return {"error": kind, "message": message, "errors": errors}


TransportLike: TypeAlias = "str | Transport | Callable[[Services], Transport]"
"""A name in the table of transports, a transport, or what makes one of `Services`: a class does."""


def build_transports(items: Sequence[TransportLike], services: Services) -> Sequence[Transport]:
    """Return the transports that are named, made or given. Raises `ConfigurationFailed`."""
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
    """Return the transports of extensions that carry no chat."""
    return [_build(make, services) for make in makers]


def _build(item: Any, services: Services) -> Transport:
    transport: Any = item if isinstance(item, Transport) else item(services)
    if not isinstance(transport, Transport):
        raise ConfigurationFailed(
            f"{type(transport).__name__} is no transport.",
            hint="Subclass copilot_runtime.transports.transport.Transport.",
        )
    return transport
