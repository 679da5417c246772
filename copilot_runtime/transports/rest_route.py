"""FastAPI routes that are built once and bound to a handler in each application.

FastAPI inspects all models of a route when it builds it, which takes a millisecond: 20 ms for the
routes of an application, and tests create thousands of applications.
"""

from collections.abc import Mapping
from copy import copy
from functools import partial
from typing import Any, Self
from urllib.parse import unquote

from fastapi.routing import APIRoute
from pydantic import BaseModel, Field
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from copilot_runtime.transports.router import LONGEST_PATH, RouterResponse

_APP = "copilot_runtime.route_app"
"""Key in a scope for the ASGI application that handles the request."""


class Problem(BaseModel):
    """Why there is no other answer; the sentence is in `message` or in `details`."""

    error: str = Field(examples=["Not found"])
    message: str | None = Field(default=None, examples=["There is no such thread."])
    details: str | None = Field(default=None, examples=[None])


PROBLEMS: dict[int | str, dict[str, Any]] = {"4XX": {"model": Problem}}
"""Descriptions of the error responses of each route in `/docs`."""


class SharedRoute(APIRoute):
    """A route whose response is written by an ASGI application; each copy has its own."""

    is_stream = False
    """`True` if the ASGI application is called directly, because FastAPI's layers must not wrap a
    stream."""

    def bind(self, app: ASGIApp) -> Self:
        """Return a copy of this route with the ASGI application that handles its requests."""
        route = copy(self)
        route.app = app if self.is_stream else partial(_call_with_app, self.app, app)
        return route


class RestRoute(SharedRoute):
    """Matches the percent-encoded path: an identifier may contain a slash as `%2F`."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if raw_path := scope.get("raw_path"):
            if len(raw_path) > LONGEST_PATH:  # left to the router to refuse
                return Match.NONE, {}
            scope = {**scope, "path": raw_path.partition(b"?")[0].decode("latin-1")}
        match, child = super().matches(scope)
        if match is not Match.NONE:
            values: dict[str, str] = child["path_params"]
            own = {name: unquote(values[name]) for name in self.param_convertors}
            child["path_params"] = {**values, **own}
        return match, child


class StreamRoute(RestRoute):
    """A route whose response is a stream."""

    is_stream = True


def answer_by_app(more: Mapping[str, Any] | None = None) -> RouterResponse:
    """Return a response that the route's ASGI application writes; `more` extends its scope."""
    return RouterResponse(_call_app, more)


async def _call_with_app(layers: ASGIApp, app: ASGIApp, *request: Any) -> None:
    scope, receive, send = request
    await layers({**scope, _APP: app}, receive, send)


async def _call_app(scope: Scope, receive: Receive, send: Send) -> None:
    await scope[_APP](scope, receive, send)
