"""Read a GraphQL request from HTTP (https://graphql.github.io/graphql-over-http/draft/)."""

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from copilot_runtime.transports.body import BadRequest
from copilot_runtime.transports.request import Request

_PARAMETERS = {"query", "operationName", "variables", "extensions"}


@dataclass(frozen=True, slots=True)
class GraphQLRequest:
    query: str
    operation_name: str | None = None
    variables: dict[str, Any] = field(default_factory=dict[str, Any])
    size: int = 0
    """Bytes of the body, or characters of the URL."""


async def read_request(request: Request) -> GraphQLRequest:
    """Read a GET or a POST. Raises `BadRequest`."""
    match request.method:
        case "POST":
            return await _read_post(request)
        case "GET" if request.query_string:
            return _from_text(request, request.query_string)
        case "GET":
            raise BadRequest("Must provide query string.", allow="GET, POST")
        case _:
            raise BadRequest("GraphQL only supports GET and POST requests.", 405, allow="GET, POST")


async def _read_post(request: Request) -> GraphQLRequest:
    has_type = "content-type" in request.headers
    media_type = request.content_type if has_type else "application/json"
    body = await request.body()
    match media_type:
        case "application/json" | "application/graphql+json":
            try:
                return _from_mapping(await request.json(), len(body))
            except ValueError as error:
                raise _not_json(error) from None
        case "application/graphql":
            return GraphQLRequest(body.decode("utf-8", "replace"))
        case "application/x-www-form-urlencoded":
            return _from_text(request, body.decode("utf-8", "replace"))
        case _:
            raise BadRequest(
                f"Cannot read a body of type {media_type!r}; send application/json.", 415
            )


def _from_text(request: Request, text: str) -> GraphQLRequest:
    try:
        fields: dict[str, Any] = dict(parse_qsl(text, keep_blank_values=True, max_num_fields=20))
    except ValueError as error:
        raise BadRequest("Too many fields; a request has four.") from error
    if variables := fields.get("variables"):
        try:
            fields["variables"] = request.decode_json(variables.encode())
        except ValueError as error:
            raise _not_json(error) from None
    return _from_mapping({key: fields[key] for key in fields if key in _PARAMETERS}, len(text))


def _not_json(error: ValueError) -> BadRequest:
    return BadRequest(f"POST body sent invalid JSON. {error}")


def _from_mapping(value: Any, size: int) -> GraphQLRequest:
    if isinstance(value, list):
        raise BadRequest("Batching is not supported.")
    if not isinstance(value, dict):
        raise BadRequest("The request body must be a JSON object.")
    body: dict[str, Any] = value
    for name in body:
        if name not in _PARAMETERS:
            raise BadRequest(f'Unexpected parameter "{name}" in the request body.')
    query, variables = body.get("query"), body.get("variables")
    operation_name = body.get("operationName")
    if not query or not isinstance(query, str):
        raise BadRequest("Must provide query string.")
    if variables is not None and not isinstance(variables, dict):
        raise BadRequest("The variables must be a JSON object.")
    if operation_name is not None and not isinstance(operation_name, str):
        raise BadRequest("The operationName must be a string.")
    return GraphQLRequest(query, operation_name or None, variables or {}, size)
