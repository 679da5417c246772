"""Endpoints that are HTTP requests."""

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlencode

import jmespath
from jmespath.exceptions import JMESPathError
from pydantic import AfterValidator, Field, StringConstraints

from copilot_runtime.actions.schema import InvalidArguments
from copilot_runtime.api.action import ActionContext
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import ConfigurationFailed, CopilotError
from copilot_runtime.base.jsontext import dumps
from copilot_runtime.base.jsonvalue import JsonObject, as_list, as_object
from copilot_runtime.config.checks import mask_credentials
from copilot_runtime.extensions.tools.catalog.client import (
    HttpClient,
    HttpReply,
    encode_query,
    encode_text,
    fill,
    fill_url,
    list_placeholders,
)
from copilot_runtime.extensions.tools.catalog.definition import read_parameters
from copilot_runtime.extensions.tools.catalog.endpoints import (
    Endpoint,
    EndpointOptions,
    Operation,
    Surroundings,
    build_context,
)
from copilot_runtime.http.errors import parse_url

if TYPE_CHECKING:
    from copilot_runtime.extensions.tools.catalog.definition import ToolDefinition

IDEMPOTENT = frozenset({"GET", "HEAD", "PUT", "DELETE"})
"""Idempotent methods: RFC 9110, 9.2.2."""

_WITHOUT_BODY = {"GET", "HEAD", "DELETE"}
_MOST_NAMES = 20
_HOST = re.compile(r"[a-z]+://[^/?#]*", re.IGNORECASE)
_BREAK = re.compile(r"[\r\n\0]")
_OF_REQUEST = re.compile(r"\$\{(header|property|caller):")


def check_expression(text: str) -> str:
    """Return a JMESPath expression. Raises `ValueError` if it is invalid."""
    try:
        jmespath.compile(text)
    except JMESPathError as error:
        raise ValueError(f"{text!r} is no JMESPath: {str(error).partition(chr(10))[0]}") from error
    return text


Expression = Annotated[str, AfterValidator(check_expression)]
Headers = Annotated[Mapping[str, str], Field(default={})]


class HttpOptions(EndpointOptions):
    """One request. `{name}` in it stands for an argument, and `${secret:NAME}` for a secret."""

    url: Annotated[str, StringConstraints(min_length=1)]
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] | None = None
    """Default: GET, or POST if there is a body."""
    query: Mapping[str, Any] | None = None
    """Default for methods without a body: the arguments that are used nowhere else."""
    headers: Headers
    body: Any = None
    """JSON, or a text. Default for methods with a body: the arguments that are used nowhere else.
    """
    result: Expression | None = None
    """A JMESPath expression that selects the result from a JSON response."""


class HttpEndpoint(Endpoint[HttpOptions]):
    """An HTTP request. Its parameters are those of the file, and the placeholders in its URL."""

    Options = HttpOptions

    def __init__(
        self, tool: "ToolDefinition", options: HttpOptions, surroundings: Surroundings
    ) -> None:
        super().__init__(tool, options, surroundings)
        surroundings.references.check(options.model_dump())
        check_address(options.url, surroundings)
        self._method = options.method or ("GET" if options.body is None else "POST")
        self._client = HttpClient(tool.name, tool.timeout)
        self._schema = self._read_parameters()
        self._names = frozenset(as_object(self._schema["properties"])) | tool.arguments.keys()
        places = [options.url, options.query, {**options.headers}, options.body]
        self._rest = self._names - {*list_placeholders(places)}
        if self._rest and options.query is not None and options.body is not None:
            raise ConfigurationFailed(
                f"The parameter {min(self._rest)!r} is nowhere in the request.",
                hint=f"Write {{{min(self._rest)}}} where it belongs.",
            )

    async def load(self, run: RunInput) -> Sequence[Operation]:
        del run
        operation = Operation(
            call=self._call,
            parameters=self._schema,
            is_idempotent=self._method in IDEMPOTENT,
        )
        return [operation]

    async def check(self, run: RunInput) -> str:
        url = self.surroundings.references.resolve(self.options.url, build_context(run))
        return "; ".join([await self._client.reach(url), *self._list_doubts()])

    async def aclose(self) -> None:
        await self._client.aclose()

    def _list_doubts(self) -> Sequence[str]:
        """Return probable misspellings: parameters or placeholders without a counterpart."""
        options, tool = self.options, self.tool
        if self._method in _WITHOUT_BODY:
            effect = "it is sent in the query"
        else:
            effect = "it is sent in the body" if options.body is None else "it is not sent"
        doubts = [
            f"{name!r} is named nowhere in the request, so {effect}"
            for name in sorted(self._rest - tool.arguments.keys())
        ]
        stated = as_object(read_parameters(tool.parameters)["properties"]).keys()
        if not stated:
            return doubts
        for name in list_placeholders([options.url, options.query]):
            if name not in stated | tool.arguments.keys():
                doubts.append(f"'{{{name}}}' is not one of the parameters, so it is one more text")
        for name in list_placeholders([{**options.headers}, options.body]):
            if name not in self._names:
                doubts.append(f"'{{{name}}}' is not one of the parameters, so it is sent as it is")
        return doubts

    def _read_parameters(self) -> JsonObject:
        """Return the schema of the file, extended by the placeholders in the URL."""
        tool, options = self.tool, self.options
        schema = read_parameters(tool.parameters)
        properties = {**as_object(schema["properties"])}
        required = [*as_list(schema.get("required"))]
        in_path = list_placeholders(options.url)
        for name in [*in_path, *list_placeholders(options.query)]:
            if name not in properties and name not in tool.arguments:
                properties[name] = {"type": "string"}
                required.append(name)
        required += [it for it in in_path if it in properties and it not in required]
        return {**schema, "properties": properties, "required": required}

    async def _call(self, values: Mapping[str, Any], context: ActionContext) -> Any:
        options, names = self.options, self._names
        url, query, headers, body = self.surroundings.references.resolve(
            [options.url, options.query, options.headers, options.body], context
        )
        rest = {name: value for name, value in values.items() if name in self._rest}
        query = as_object(fill(query or {}, values, names))
        if self._method in _WITHOUT_BODY:
            query = {**rest, **query}
        if body is None and self._method not in _WITHOUT_BODY:
            body = rest
        else:
            body = fill(body, values, names)
        sent, content = encode_body(body, fill_headers(headers, values, names))
        url = add_query(fill_url(url, values, names), query)
        reply = await self._client.send(self._method, url, sent, content, context)
        if options.result is not None:
            return select(options.result, reply.parse_json(), self.tool)
        return read_reply(reply)


def check_address(url: str, surroundings: Surroundings) -> None:
    """Raise `ConfigurationFailed` if a URL is invalid, or an argument could choose its host."""
    host = _HOST.match(url)
    if list_placeholders(host[0] if host else url.partition("/")[0]):
        raise ConfigurationFailed(
            f"The model would choose the host of {mask_credentials(url)!r}.",
            hint="An argument may stand in a path, in a query, in a header or in a body.",
        )
    if not _OF_REQUEST.search(url):
        parse_url(
            surroundings.references.resolve(url),
            "tool's address",
            "It looks like https://host/path.",
        )


def fill_headers(
    headers: Mapping[str, str], values: Mapping[str, Any], names: frozenset[str]
) -> dict[str, str]:
    """Return headers with arguments filled in. Raises `InvalidArguments` for line breaks."""
    sent = {name.lower(): encode_text(fill(text, values, names)) for name, text in headers.items()}
    for name, text in sent.items():
        if _BREAK.search(text):
            raise InvalidArguments(f"Invalid arguments: the header {name!r} must be one line.")
    return sent


def encode_body(body: Any, headers: dict[str, str]) -> tuple[dict[str, str], bytes | None]:
    """Return the headers and the bytes of a body: text unchanged, other values as JSON."""
    headers = {"accept": "application/json, text/*;q=0.9, */*;q=0.5", **headers}
    if body is None:
        return headers, None
    kind = "text/plain; charset=utf-8" if isinstance(body, str) else "application/json"
    content = body.encode(errors="replace") if isinstance(body, str) else dumps(body)
    return {"content-type": kind, **headers}, content


def add_query(url: str, query: Mapping[str, Any]) -> str:
    """Return a URL with further query fields."""
    encoded = urlencode(encode_query(query))
    if not encoded:
        return url
    return f"{url}{'&' if '?' in url else '?'}{encoded}"


def read_reply(reply: HttpReply) -> Any:
    """Return the result in a response: JSON, text, or an image in MCP's format."""
    if reply.is_json:
        return reply.parse_json() if reply.content else None
    if reply.is_text:
        return reply.content.decode(errors="replace")
    if reply.content_type.startswith("image/"):
        data = b64encode(reply.content).decode()
        return {"content": [{"type": "image", "data": data, "mimeType": reply.content_type}]}
    raise CopilotError(f"The service answered with {reply.content_type!r}, which no model reads.")


def select(expression: str, value: Any, tool: "ToolDefinition") -> Any:
    """Return the selection of a JMESPath expression. Raises `CopilotError` on failure.

    An empty selection is reported in the result, unless the tool has a result schema.
    """
    try:
        selected = jmespath.search(expression, value)
    except JMESPathError as error:
        raise CopilotError(f"Nothing can be selected from the answer: {error}") from error
    if selected is None and tool.returns is None and tool.result_form is None:
        names = ", ".join([*as_object(value)][:_MOST_NAMES])
        fields = f" The answer has: {names}." if names else ""
        return f"There is nothing at {expression!r} in the answer.{fields}"
    return selected
