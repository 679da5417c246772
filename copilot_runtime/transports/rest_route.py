"""A route as FastAPI has it: made once, and bound to what answers it in each application.

FastAPI looks through all models of a route when it makes it, which takes a millisecond: for the
routes of an application that is 20 ms, and tests make thousands of applications.
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
"""The key in a scope for the application that answers the request."""


class Problem(BaseModel):
    """Why there is no other answer; the sentence is in `message` or in `details`."""

    error: str = Field(examples=["Not found"])
    message: str | None = Field(default=None, examples=["There is no such thread."])
    details: str | None = Field(default=None, examples=[None])


PROBLEMS: dict[int | str, dict[str, Any]] = {"4XX": {"model": Problem}}
"""What `/docs` says of refusals, of each route."""


class SharedRoute(APIRoute):
    """A route whose answer an application of its own writes, one for each copy."""

    is_stream = False
    """Whether the application answers at once: no layer of FastAPI stands around a stream."""

    def bind(self, app: ASGIApp) -> Self:
        """Return this route with the application that answers its requests."""
        route = copy(self)
        route.app = app if self.is_stream else partial(_call_with_app, self.app, app)
        return route


class RestRoute(SharedRoute):
    """Matches a path as its client encoded it: an id may have a slash in it, as `%2F`."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if raw_path := scope.get("raw_path"):
            if len(raw_path) > LONGEST_PATH:  # for the router to refuse
                return Match.NONE, {}
            scope = {**scope, "path": raw_path.partition(b"?")[0].decode("latin-1")}
        match, child = super().matches(scope)
        if match is not Match.NONE:
            values: dict[str, str] = child["path_params"]
            own = {name: unquote(values[name]) for name in self.param_convertors}
            child["path_params"] = {**values, **own}
        return match, child


class StreamRoute(RestRoute):
    """A route whose answer is a stream."""

    is_stream = True


def answer_by_app(more: Mapping[str, Any] | None = None) -> RouterResponse:
    """Return a response that the application of a route writes, with `more` in its scope."""
    return RouterResponse(_call_app, more)


async def _call_with_app(layers: ASGIApp, app: ASGIApp, *request: Any) -> None:
    scope, receive, send = request
    await layers({**scope, _APP: app}, receive, send)


async def _call_app(scope: Scope, receive: Receive, send: Send) -> None:
    await scope[_APP](scope, receive, send)
