"""FastAPI routes that describe the router's responses, for `/docs`.

FastAPI inspects all models of a route when it builds it, which takes a millisecond: 20 ms for the
routes of an application, and tests create thousands of applications.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import lru_cache
from typing import Any, Self, TypeAlias, cast
from urllib.parse import unquote

from fastapi import APIRouter
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Scope

from copilot_runtime.transports.router import LONGEST_PATH


class Problem(BaseModel):
    """An error response; the message is in `message` or in `details`."""

    error: str = Field(examples=["Not found"])
    message: str | None = Field(default=None, examples=["There is no such thread."])
    details: str | None = Field(default=None, examples=[None])


class RestRoute(APIRoute):
    """Matches the percent-encoded path: an identifier may contain a slash as `%2F`.

    The function of a route is never called: an ASGI application reads the request and responds.
    """

    def bind(self, app: ASGIApp) -> Self:
        """Return a copy of this route with the ASGI application that handles its requests."""
        route = copy(self)
        route.app = app
        return route

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


Routes: TypeAlias = Callable[[str, ASGIApp], Sequence[BaseRoute]]
"""Returns routes below the path of a URL; the ASGI application responds to their requests."""


def declare_routes(tag: str, prefix: str = "") -> Callable[[Callable[[APIRouter], None]], Routes]:
    """Return a decorator for a function that adds routes, each with a signature and a docstring."""

    def decorate(declare: Callable[[APIRouter], None]) -> Routes:
        @lru_cache(maxsize=16)
        def make(path: str) -> Sequence[RestRoute]:
            router = APIRouter(
                prefix=f"{path}{prefix}",
                tags=[tag],
                route_class=RestRoute,
                responses={"4XX": {"model": Problem}},
            )
            declare(router)
            return cast("list[RestRoute]", router.routes)

        return lambda path, app: [route.bind(app) for route in make(path)]

    return decorate


def describe_stream(description: str) -> dict[int | str, dict[str, Any]]:
    """Return the description of a response that is a stream of server-sent events."""
    content = {"text/event-stream": {"schema": {"type": "string"}}}
    return {200: {"description": description, "content": content}}


def describe_body(model: type[BaseModel], *, required: bool = True) -> dict[str, Any]:
    """Return the description of a body, which the endpoint reads and checks itself."""
    schema = model.model_json_schema()
    inlined = _inline(schema, schema.pop("$defs", {}))
    content = {"application/json": {"schema": inlined}}
    return {"requestBody": {"required": required, "content": content}}


def _inline(node: Any, definitions: Mapping[str, Any]) -> Any:
    """Return a schema without `$ref`, which would lead nowhere from within a description."""
    match node:
        case {"$ref": str(name)}:
            return _inline(definitions[name.removeprefix("#/$defs/")], definitions)
        case dict():
            fields = cast("dict[str, Any]", node)
            return {name: _inline(value, definitions) for name, value in fields.items()}
        case list():
            return [_inline(item, definitions) for item in cast("list[Any]", node)]
        case _:
            return node
