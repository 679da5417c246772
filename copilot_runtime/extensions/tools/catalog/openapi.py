"""Endpoints that are operations of an OpenAPI document: https://spec.openapis.org/oas/v3.1.1."""

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast
from urllib.parse import quote, urlencode, urljoin

from pydantic import StringConstraints

from copilot_runtime.actions.json_schema import simplify
from copilot_runtime.actions.schema import InvalidArguments
from copilot_runtime.api.action import ActionContext
from copilot_runtime.api.run_input import RunInput
from copilot_runtime.base.errors import ConfigurationFailed, CopilotError
from copilot_runtime.base.jsonvalue import (
    JsonObject,
    as_list,
    as_object,
    as_objects,
    get_object,
    get_text,
)
from copilot_runtime.extensions.tools.catalog.client import HttpClient, encode_query, encode_text
from copilot_runtime.extensions.tools.catalog.endpoints import (
    Endpoint,
    EndpointOptions,
    Operation,
    Surroundings,
)
from copilot_runtime.extensions.tools.catalog.http import (
    IDEMPOTENT,
    Headers,
    check_address,
    encode_body,
    read_reply,
)
from copilot_runtime.http.errors import get_origin, parse_url

if TYPE_CHECKING:
    from copilot_runtime.extensions.tools.catalog.definition import ToolDefinition

MOST_OPERATIONS = 128
"""Maximum number of operations per document: model providers accept no more tools."""

DOCUMENT_TTL = 300.0
"""Seconds for which a fetched document is cached."""

_METHODS = ("get", "put", "post", "delete", "patch", "head")
_COMPONENTS = "#/components/schemas/"
_BODY = "body"
_FORM = "application/x-www-form-urlencoded"
_NOISE = ("example", "examples", "xml", "externalDocs", "deprecated", "discriminator")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]+")
_BREAK = re.compile(r"[\r\n\0]")
_DEEPEST = 40

Place = Literal["path", "query", "header", "cookie"]


class OpenapiOptions(EndpointOptions):
    """A document, and a selection of its operations."""

    document: Annotated[str, StringConstraints(min_length=1)]
    """The path of a JSON or YAML file, or a URL."""
    operations: tuple[str, ...] = ("*",)
    """Patterns of operation ids, or of methods with paths such as `GET /pets/*`."""
    server: str = ""
    """The service's URL. Default: the first in the document."""
    headers: Headers
    query: Mapping[str, str] = {}
    """Further query fields for each request, such as a key."""
    checks_results: bool = False
    """True if responses must match the document; many documents are inexact."""


@dataclass(frozen=True, slots=True)
class _Parameter:
    """The location of an argument in the request."""

    name: str
    place: Place
    explode: bool
    is_deep: bool


@dataclass(frozen=True, slots=True)
class _Method:
    """An operation of the document."""

    name: str
    method: str
    path: str
    fields: JsonObject
    shared: Sequence[JsonObject]
    """Parameters that all methods of the path share."""


class OpenapiEndpoint(Endpoint[OpenapiOptions]):
    """The operations of a document, each of which is a tool: `<tool>_<operation id>`."""

    Options = OpenapiOptions
    is_fixed = False

    def __init__(
        self, tool: "ToolDefinition", options: OpenapiOptions, surroundings: Surroundings
    ) -> None:
        super().__init__(tool, options, surroundings)
        surroundings.references.check(options.model_dump())
        self._client = HttpClient(tool.name, tool.timeout)
        self._is_remote = options.document.startswith(("http://", "https://"))
        if options.server:
            check_address(options.server, surroundings)
        self._operations: Sequence[Operation] = ()
        self._server = ""
        self._stamp: object = None
        self._read_at = 0.0
        self._lock = asyncio.Lock()
        if not self._is_remote:
            self._read_file()

    async def load(self, run: RunInput) -> Sequence[Operation]:
        del run
        async with self._lock:
            if not self._is_remote:
                await asyncio.to_thread(self._read_file)
            elif not self._operations or monotonic() - self._read_at > DOCUMENT_TTL:
                await self._fetch()
        return self._operations

    def list_operations(self) -> Sequence[Operation]:
        return self._operations

    async def check(self, run: RunInput) -> str:
        operations = await self.load(run)
        return f"{len(operations)} operations; {await self._client.reach(self._server)}"

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _fetch(self) -> None:
        """Fetch the document. On failure, a previous version stays in use."""
        try:
            url, headers = self.surroundings.references.resolve(
                [self.options.document, self.options.headers]
            )
            reply = await self._client.send("GET", url, headers)
            self._read(await asyncio.to_thread(_parse_document, reply.content), url)
        except CopilotError:
            if not self._operations:
                raise
        self._read_at = monotonic()

    def _read_file(self) -> None:
        """Read the document if it has changed. Raises `ConfigurationFailed`."""
        path = self.surroundings.folder / Path(self.options.document)
        try:
            stat = path.stat()
            stamp = (stat.st_mtime_ns, stat.st_size)
            if stamp != self._stamp:
                self._read(_parse_document(path.read_bytes()), "")
                self._stamp = stamp
        except OSError as error:
            raise ConfigurationFailed(
                f"The document '{path}' cannot be read: {error.strerror or error}."
            ) from error

    def _read(self, document: JsonObject, url: str) -> None:
        version = get_text(document, "openapi")
        if not version.startswith("3."):
            raise ConfigurationFailed(
                f"The document {self.options.document!r} is none of OpenAPI 3.",
                hint="Its field openapi is such as 3.1.0; those of Swagger 2 can be converted.",
            )
        self._server = self._find_server(document, url)
        methods = [it for it in _list_methods(document) if self._is_chosen(it)]
        if not methods:
            raise ConfigurationFailed(
                f"The document {self.options.document!r} has none of the operations "
                f"{', '.join(self.options.operations)}.",
                hint=f"It has: {', '.join(it.name for it in _list_methods(document))[:500]}.",
            )
        if len(methods) > MOST_OPERATIONS:
            raise ConfigurationFailed(
                f"The document {self.options.document!r} has {len(methods)} such operations; at "
                f"most {MOST_OPERATIONS} are offered.",
                hint="Name those that are needed: operations: [listPets, 'GET /pets/*'].",
            )
        is_alone = self.options.operations == (methods[0].name,)
        self._operations = [
            self._build_operation(document, it, "" if is_alone else it.name) for it in methods
        ]

    def _find_server(self, document: JsonObject, url: str) -> str:
        if self.options.server:
            return self.options.server
        server = next(iter(as_objects(document.get("servers"))), {})
        address = get_text(server, "url") or "/"
        for name, variable in get_object(server, "variables").items():
            address = address.replace(f"{{{name}}}", get_text(as_object(variable), "default"))
        address = urljoin(url, address) if url else address
        parse_url(address, "server of the document", "Name another one: server: https://host.")
        if url and get_origin(address) != get_origin(url):
            raise ConfigurationFailed(
                f"The document of {get_origin(url)!r} names a server elsewhere: "
                f"{get_origin(address)!r}.",
                hint=f"If that is meant, write it: server: {address}.",
            )
        return address

    def _is_chosen(self, method: _Method) -> bool:
        names = (method.name, f"{method.method} {method.path}")
        return any(
            fnmatchcase(name, pattern) for name in names for pattern in self.options.operations
        )

    def _build_operation(self, document: JsonObject, method: _Method, name: str) -> Operation:
        schema, parameters, body = _build_parameters(document, method)
        response = _find_response(document, method) if self.options.checks_results else None

        async def call(values: Mapping[str, Any], context: ActionContext) -> Any:
            return await self._call(method, parameters, body, values, context)

        fields = method.fields
        return Operation(
            call=call,
            name=name,
            description=get_text(fields, "description") or get_text(fields, "summary"),
            parameters=schema,
            result_schema=response,
            is_idempotent=method.method in IDEMPOTENT,
        )

    async def _call(
        self,
        method: _Method,
        parameters: Mapping[str, _Parameter],
        body: "_Body | None",
        values: Mapping[str, Any],
        context: ActionContext,
    ) -> Any:
        references, options = self.surroundings.references, self.options
        server, headers, query = references.resolve(
            [self._server if options.server else "", options.headers, options.query], context
        )
        pairs: dict[Place, list[tuple[str, str]]] = {
            "path": [],
            "query": [],
            "header": [],
            "cookie": [],
        }
        for key, value in values.items():
            if (parameter := parameters.get(key)) is not None and value is not None:
                pairs[parameter.place] += _encode(parameter, value)
        sent = {name.lower(): text for name, text in [*pairs["header"], *headers.items()]}
        if pairs["cookie"]:
            sent["cookie"] = "; ".join(f"{name}={quote(text)}" for name, text in pairs["cookie"])
        if any(_BREAK.search(text) for text in sent.values()):
            raise InvalidArguments("Invalid arguments: a header must be one line.")
        content = None
        if body is not None and (value := body.collect(values)) is not None:
            if body.content_type == _FORM:
                value, sent["content-type"] = urlencode(encode_query(as_object(value))), _FORM
            sent, content = encode_body(value, sent)
        else:
            sent, _ = encode_body(None, sent)
        url = f"{(server or self._server).rstrip('/')}{_fill_path(method.path, pairs['path'])}"
        fields = urlencode([*pairs["query"], *query.items()])
        url = f"{url}?{fields}" if fields else url
        return read_reply(await self._client.send(method.method, url, sent, content, context))


@dataclass(frozen=True, slots=True)
class _Body:
    """The request body: one argument, or an object whose members are arguments."""

    content_type: str
    members: frozenset[str] | None

    def collect(self, values: Mapping[str, Any]) -> Any:
        """Return the body, or None if it has no arguments."""
        if self.members is None:
            return values.get(_BODY)
        return {name: value for name, value in values.items() if name in self.members}


def _parse_document(data: bytes) -> JsonObject:
    """Parse JSON or YAML. Raises `ConfigurationFailed` if it is neither."""
    import yaml

    from copilot_runtime.base.jsontext import loads
    from copilot_runtime.config.yaml_model import TOO_MANY_ALIASES, find_bomb

    try:
        if data.lstrip()[:1] == b"{":
            return as_object(loads(data))
        if (line := find_bomb(yaml.compose(data, yaml.SafeLoader))) is not None:
            raise ConfigurationFailed(f"The document, line {line + 1}: {TOO_MANY_ALIASES}.")
        found: Any = yaml.safe_load(data)
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise ConfigurationFailed(f"The document is neither JSON nor YAML: {error}") from error
    return as_object(found)


def _list_methods(document: JsonObject) -> Iterator[_Method]:
    for path, item in as_object(document.get("paths")).items():
        fields = _resolve(document, item)
        for method in _METHODS:
            if method in fields:
                own = as_object(fields[method])
                name = get_text(own, "operationId") or f"{method}{path}"
                clean = _NOT_IN_NAMES.sub("_", name).strip("_")
                shared = as_objects(fields.get("parameters"))
                yield _Method(clean, method.upper(), path, own, shared)


def _resolve(document: JsonObject, node: Any) -> JsonObject:
    """Return an object, or the target of its `$ref` within the document."""
    for _ in range(_DEEPEST):
        ref = get_text(as_object(node), "$ref")
        if not ref.startswith("#/"):
            return as_object(node)
        node = document
        for step in ref[2:].split("/"):
            node = as_object(node).get(step.replace("~1", "/").replace("~0", "~"))
    return {}


def _build_parameters(
    document: JsonObject, method: _Method
) -> tuple[JsonObject, Mapping[str, _Parameter], _Body | None]:
    """Return the schema of all arguments, the locations of parameters, and the body."""
    listed = [*method.shared, *as_objects(method.fields.get("parameters"))]
    own = {
        (get_text(it, "name"), get_text(it, "in")): it
        for it in (_resolve(document, each) for each in listed)
    }
    properties: JsonObject = {}
    required: list[str] = []
    parameters: dict[str, _Parameter] = {}
    for (name, place), fields in own.items():
        if place not in ("path", "query", "header", "cookie"):
            continue
        key = _NOT_IN_NAMES.sub("_", name)[:64]
        key = f"{place}_{key}"[:64] if key in properties else key
        schema = fields.get("schema") or _find_schema(fields)[1]
        words = {"description": text} if (text := get_text(fields, "description")) else {}
        properties[key] = {**as_object(schema), **words}
        is_form = place in ("query", "cookie")
        parameters[key] = _Parameter(
            name=name,
            place=place,
            explode=bool(fields.get("explode", is_form)),
            is_deep=fields.get("style") == "deepObject",
        )
        if fields.get("required") or place == "path":
            required.append(key)
    body_fields = _resolve(document, method.fields.get("requestBody"))
    content_type, body_schema = _find_schema(body_fields)
    if content_type:
        properties[_BODY] = {**body_schema}
        if body_fields.get("required"):
            required.append(_BODY)
    schema = _simplify(document, {"properties": properties, "required": required})
    if not content_type:
        return schema, parameters, None
    members = _spread_body(schema)
    return schema, parameters, _Body(content_type, members)


def _find_schema(fields: JsonObject) -> tuple[str, JsonObject]:
    """Return a supported content type and its schema, or an empty type if there is none."""
    content = as_object(fields.get("content"))
    for kind, media in content.items():
        if kind.partition(";")[0].endswith(("/json", "+json")):
            return "application/json", get_object(media, "schema")
    for kind in (_FORM, "text/plain"):
        if kind in content:
            return kind, get_object(content[kind], "schema")
    return "", {}


def _find_response(document: JsonObject, method: _Method) -> JsonObject | None:
    """Return the JSON schema of a successful response, if the document has it."""
    # YAML parses the key 200 as a number
    responses = {str(key): it for key, it in get_object(method.fields, "responses").items()}
    for status in ("200", "201", "2XX", "default"):
        kind, schema = _find_schema(_resolve(document, responses.get(status)))
        if kind == "application/json" and schema:
            whole = _simplify(document, {"properties": {_BODY: schema}})
            definitions = {key: whole[key] for key in ("$defs",) if key in whole}
            return {**whole["properties"][_BODY], **definitions}
    return None


def _simplify(document: JsonObject, schema: JsonObject) -> JsonObject:
    """Return the schema of an object, with the definitions that it refers to."""
    definitions = {
        name: _convert(document, value)
        for name, value in get_object(document, "components", "schemas").items()
    }
    try:
        whole = simplify({"$defs": definitions, **_convert(document, schema)})
    except (RecursionError, KeyError) as error:
        raise ConfigurationFailed("The schemas of the document cannot be resolved.") from error
    if "$defs" in whole:  # recursive definitions: only those that are needed
        needed = _list_references(whole)
        whole["$defs"] = {name: it for name, it in whole["$defs"].items() if name in needed}
        if not needed:
            del whole["$defs"]
    return whole


def _list_references(schema: JsonObject) -> set[str]:
    """Return the names of definitions that a schema refers to, directly or indirectly."""
    needed: set[str] = set()
    ahead: list[Any] = [{name: value for name, value in schema.items() if name != "$defs"}]
    while ahead:
        node = ahead.pop()
        if isinstance(node, list):
            ahead += cast("list[Any]", node)
            continue
        fields = as_object(node)
        name = get_text(fields, "$ref").removeprefix("#/$defs/")
        if name and name not in needed:
            needed.add(name)
            ahead.append(get_object(schema, "$defs", name))
        ahead += fields.values()
    return needed


def _convert(document: JsonObject, node: Any, depth: int = 0) -> Any:
    """Return a schema of OpenAPI 3.0 or 3.1 as JSON schema, reduced to keywords for models."""
    if depth > _DEEPEST:
        return {}
    if isinstance(node, list):
        return [_convert(document, it, depth + 1) for it in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    fields = cast("JsonObject", node)
    ref = fields.get("$ref")
    if isinstance(ref, str):
        name = ref.removeprefix(_COMPONENTS)
        is_there = name in get_object(document, "components", "schemas") and name != ref
        return {"$ref": f"#/$defs/{name}"} if is_there else {}
    result: JsonObject = {}
    for key, value in fields.items():
        if key == "properties":  # keys are property names, not JSON schema keywords
            members = as_object(value).items()
            result[key] = {name: _convert(document, it, depth + 1) for name, it in members}
        elif key not in _NOISE:
            is_value = key in ("enum", "default", "const")
            result[key] = value if is_value else _convert(document, value, depth + 1)
    for limit in ("Minimum", "Maximum"):
        exclusive = result.get(f"exclusive{limit}")
        if isinstance(exclusive, bool):  # as OpenAPI 3.0 has it
            del result[f"exclusive{limit}"]
            if exclusive and limit.lower() in result:
                result[f"exclusive{limit}"] = result.pop(limit.lower())
    if result.pop("nullable", None) is True and isinstance(kind := result.get("type"), str):
        result["type"] = [kind, "null"]
    return result


def _spread_body(schema: JsonObject) -> frozenset[str] | None:
    """Merge the members of a required body into the other arguments, unless names collide."""
    properties = schema["properties"]
    body = as_object(properties.get(_BODY))
    members = as_object(body.get("properties"))
    others = properties.keys() - {_BODY}
    if _BODY not in schema["required"] or not members or others & members.keys():
        return None
    if body.get("additionalProperties") or any(_NOT_IN_NAMES.search(name) for name in members):
        return None
    del properties[_BODY]
    properties |= members
    schema["required"] = [
        *(name for name in schema["required"] if name != _BODY),
        *as_list(body.get("required")),
    ]
    return frozenset(members)


def _encode(parameter: _Parameter, value: Any) -> list[tuple[str, str]]:
    """Return the name-value pairs of an argument, by RFC 6570 as OpenAPI applies it."""
    name = parameter.name
    if isinstance(value, list):
        texts = [encode_text(item) for item in cast("list[Any]", value)]
        is_many = parameter.explode and parameter.place in ("query", "cookie")
        return [(name, text) for text in texts] if is_many else [(name, ",".join(texts))]
    if isinstance(value, dict):
        members = cast("JsonObject", value).items()
        if parameter.is_deep:
            return [(f"{name}[{key}]", encode_text(it)) for key, it in members]
        if parameter.explode and parameter.place in ("query", "cookie"):
            return [(key, encode_text(it)) for key, it in members]
        glue = "=" if parameter.explode else ","
        return [(name, ",".join(f"{key}{glue}{encode_text(it)}" for key, it in members))]
    return [(name, encode_text(value))]


def _fill_path(path: str, pairs: Sequence[tuple[str, str]]) -> str:
    """Return the path with its arguments.

    Raises `InvalidArguments` if an argument changes the path.
    """
    for name, text in pairs:
        if text in ("", ".", ".."):
            raise InvalidArguments(f"Invalid arguments: {name}: {text!r} is no part of a path.")
        path = path.replace(f"{{{name}}}", quote(text, safe=""))
    return path
