"""Parses tools from YAML: a mapping from names to descriptions and endpoints."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal, Self, cast

import orjson
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    StringConstraints,
    create_model,
    model_validator,
)

from copilot_runtime.base.errors import ConfigurationFailed
from copilot_runtime.base.jsonvalue import JsonObject, as_list, as_object
from copilot_runtime.config.yaml_model import find_line, list_keys, parse_yaml_model
from copilot_runtime.extensions.tools.catalog.endpoints import (
    EndpointOptions,
    Operation,
    endpoint_kinds,
)

MAX_SIZE = 1024 * 1024
"""Maximum size of a file, in bytes."""

GRPC = "grpc"
SERVICES = "services"
"""The key of shared services in a file, which is no tool."""

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Text = Annotated[str, StringConstraints(strip_whitespace=True, max_length=20_000)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]


class ToolFields(BaseModel):
    """The fields of a tool, without its endpoint."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    description: Text = ""
    """The description for the model, unless the four parts below are used."""
    purpose: Text = ""
    applicability: Text = ""
    instructions: Text = ""
    evaluation: Text = ""
    parameters: Mapping[str, Any] = Field(default={})
    """Parameters by name, each as its description or a JSON schema; or one schema for all."""
    arguments: Mapping[str, Any] = Field(default={})
    """Fixed arguments, which override the model's and are hidden from it."""
    hidden: tuple[str, ...] = ()
    """Parameters that are hidden from the model and not sent."""
    returns: Mapping[str, Any] | None = None
    """The JSON schema of results; a result that violates it is an error."""
    timeout: Seconds = 30.0
    retries: Annotated[int, Field(ge=0, le=10)] = 2
    """Maximum number of retries of an idempotent call after a temporary failure."""
    max_result: Annotated[int, Field(gt=0, le=1024 * 1024)] = 64 * 1024
    """Maximum size of a result, in bytes."""
    idempotent: bool | None = None
    """True if repeating a call has no further effect; None for the endpoint's default."""
    result_form: Literal["content", "identifiers"] | None = Field(default=None, alias="as")
    """Whether a result is the content itself, or identifiers of resources whose texts are read."""
    method: str = ""
    """Copilot-LD's form of an endpoint: the gRPC method `package.Service.Method`."""
    request: str = ""
    """Copilot-LD's form: the method's request message, `package.Type`."""


class ToolDefinition(ToolFields):
    """A tool as defined in a file."""

    name: str
    source: str
    """The file and the line, for error messages."""
    kind: str
    """The kind of its endpoint."""
    options: EndpointOptions
    """The options of its endpoint."""

    @property
    def sections(self) -> str:
        """The description for the model, with the headings of Copilot-LD."""
        parts = (
            ("", self.description),
            ("PURPOSE: ", self.purpose),
            ("WHEN TO USE: ", self.applicability),
            ("HOW TO USE: ", self.instructions),
            ("RETURNS: ", self.evaluation),
        )
        return "\n\n".join(heading + text for heading, text in parts if text)

    def describe_resource(self) -> JsonObject:
        """Return the description for a resource, without the endpoint and fixed arguments."""
        fields = self.model_dump(
            include={"purpose", "instructions", "applicability", "evaluation", "description"}
        )
        names = {"content": self.sections, "title": self.name, "name": self.name}
        return {**fields, **names, "endpoint": self.kind}


def parse_tools(text: str, source: str) -> Mapping[str, ToolDefinition]:
    """Return the tools of a file by name.

    Raises `ConfigurationFailed` with the line of each error.
    """
    if len(text) > MAX_SIZE:
        raise ConfigurationFailed(f"{source}:1: the file is larger than {MAX_SIZE // 1024} kB.")
    tools: Mapping[str, Any] = parse_yaml_model(_file_model(), text, source).root
    lines = list_keys(text)
    mistakes = [
        f"{source}:{find_line(text, [name, 'parameters', *path])}: the tool {name!r}: {mistake}"
        for name, tool in tools.items()
        for path, mistake in find_mistakes(tool.parameters)
    ]
    if mistakes:
        raise ConfigurationFailed("\n".join(mistakes))
    return {name: _define(name, f"{source}:{lines[name]}", tool) for name, tool in tools.items()}


def parse_services(text: str, source: str) -> Mapping[str, Any]:
    """Return the shared services of a file. Raises `ConfigurationFailed`."""
    import yaml

    values: Any = yaml.safe_load(text) or {}
    services = values.get(SERVICES) or {}
    if not isinstance(services, dict):
        line = list_keys(text)[SERVICES]
        raise ConfigurationFailed(
            f"{source}:{line}: services: write the name of one, and an address."
        )
    return cast("dict[str, Any]", services)


def _define(name: str, source: str, tool: ToolFields) -> ToolDefinition:
    values = {field: getattr(tool, field) for field in ToolFields.model_fields}
    endpoint: BaseModel | None = getattr(tool, "endpoint", None)
    if endpoint is None:
        kind = GRPC
        options = endpoint_kinds()[GRPC].Options(method=tool.method, request=tool.request)
    else:
        (kind,) = endpoint.model_fields_set
        options = getattr(endpoint, kind)
    return ToolDefinition.model_construct(
        name=name, source=source, kind=kind, options=options, **values
    )


class _EndpointFields(BaseModel):
    """The endpoint kinds as fields, of which a tool sets exactly one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if len(self.model_fields_set) != 1:
            raise ValueError(f"write one of {', '.join(type(self).model_fields)}")
        return self


class _ToolFields(ToolFields):
    @model_validator(mode="after")
    def _has_endpoint(self) -> Self:
        has_endpoint = getattr(self, "endpoint", None) is not None
        if has_endpoint and (self.method or self.request):
            raise ValueError("it has an endpoint as well as a method or a request: leave one out")
        if not has_endpoint and not self.method:
            kinds = ", ".join(endpoint_kinds())
            raise ValueError(f"it calls nothing: write an endpoint, which is one of {kinds}")
        return self


@cache
def _file_model() -> type[RootModel[Any]]:
    """Return the pydantic model of a file, whose fields depend on the available endpoint kinds."""
    kinds: dict[str, Any] = {name: (kind.Options, None) for name, kind in endpoint_kinds().items()}
    endpoint = create_model("Endpoint", __base__=_EndpointFields, **kinds)
    fields: dict[str, Any] = {"endpoint": (endpoint | None, None)}
    tool = create_model("Tool", __base__=_ToolFields, **fields)

    class File(RootModel[dict[Name, tool]]):
        @model_validator(mode="before")
        @classmethod
        def _leave_out_services(cls, values: Any) -> Any:
            return {name: value for name, value in values.items() if name != SERVICES}

    return File


MAX_SCHEMA = 64 * 1024
"""Maximum size of a schema, in bytes: it is sent with each model request."""

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""Parameter names that all model providers accept."""

_NULLABLE = {"default", "const"}
"""Keywords of JSON schema that may be null."""


def build_parameters(tool: "ToolDefinition", operation: Operation) -> JsonObject:
    """Return the schema for the model: the endpoint's, with the descriptions of the file.

    Fixed and hidden parameters are removed. Raises `ConfigurationFailed` if the schema is too
    large.
    """
    schema = merge_parameters(operation.parameters, tool.parameters)
    unseen = {*tool.arguments, *tool.hidden}
    properties = {
        name: value
        for name, value in as_object(schema.get("properties")).items()
        if name not in unseen
    }
    required = [name for name in as_list(schema.pop("required", None)) if name not in unseen]
    schema |= {"properties": properties, **({"required": required} if required else {})}
    try:
        size = len(orjson.dumps(schema))
    except TypeError as error:  # integers above 64 bits, or too deep nesting
        raise ConfigurationFailed("The schema of its parameters cannot be sent.") from error
    if size > MAX_SCHEMA:
        raise ConfigurationFailed(
            f"The schema of its parameters has {size} bytes; at most {MAX_SCHEMA} are sent."
        )
    return schema


def merge_parameters(schema: Mapping[str, Any], parameters: Mapping[str, Any]) -> JsonObject:
    """Return an endpoint's schema, overridden by the parameters of a file.

    A string is the description of an existing parameter.
    """
    if is_whole_schema(parameters):
        return {**parameters}
    properties = {**as_object(schema.get("properties"))}
    required = [*as_list(schema.get("required"))]
    for name, value in parameters.items():
        if name not in properties:
            continue
        own = {"description": value} if isinstance(value, str) else {**as_object(value)}
        needed = own.pop("required", name in required)
        required = [each for each in required if each != name] + ([name] if needed else [])
        properties[name] = {**as_object(properties[name]), **own}
    return {**schema, "type": "object", "properties": properties, "required": required}


def read_parameters(parameters: Mapping[str, Any]) -> JsonObject:
    """Return the schema defined by a file, for an endpoint without its own.

    A parameter is required unless it has a default or says `required: false`.
    """
    if is_whole_schema(parameters):
        return {**parameters}
    properties: JsonObject = {}
    required: list[str] = []
    for name, value in parameters.items():
        if isinstance(value, str):
            properties[name] = {"type": "string", "description": value}
            required.append(name)
        else:
            own = {**as_object(value)}
            if own.pop("required", "default" not in own):
                required.append(name)
            properties[name] = own
    return {"type": "object", "properties": properties, "required": required}


def fill_defaults(values: Mapping[str, Any], properties: Mapping[str, Any]) -> JsonObject:
    """Return values with the defaults of absent properties, also within objects."""
    filled = {**values}
    for name, schema in properties.items():
        schema = as_object(schema)
        if isinstance(value := filled.get(name), dict):
            inner = as_object(schema.get("properties"))
            filled[name] = fill_defaults(cast("JsonObject", value), inner)
        elif name not in filled and "default" in schema:
            filled[name] = schema["default"]
    return filled


def find_mistakes(parameters: Mapping[str, Any]) -> Iterator[tuple[Sequence[str], str]]:
    """Yield errors in the parameters of a file, each with its path.

    YAML parses an unquoted text with a comma in braces as several keys without values.
    """
    is_whole = is_whole_schema(parameters)
    named = as_object(parameters["properties"]) if is_whole else parameters
    steps = ("properties",) if is_whole else ()
    for name, value in named.items():
        fault = _find_fault(name, value)
        if fault is not None:
            hint = _suggest_quotes(named, name) if value is None else ""
            yield (*steps, name), f"The parameter {name!r} {fault}{hint}"
        schema = as_object(value)
        for key in schema:
            if schema[key] is None and key not in _NULLABLE:
                hint = _suggest_quotes(schema, key)
                yield (
                    (*steps, name, key),
                    f"The parameter {name!r} has {key!r} without a value.{hint}",
                )


def _find_fault(name: Any, value: Any) -> str | None:
    if not _NAME.fullmatch(str(name)):
        return "has a name that no model takes: letters, digits, _ . and -, at most 64."
    if value is None:
        return "has no description: write one, or a JSON schema."
    if not isinstance(value, str | dict):
        return f"is {value!r}: write a description, or a JSON schema."
    return None


def _suggest_quotes(members: Mapping[str, Any], name: str) -> str:
    """Return a hint if a mapping's key may be the remainder of an unquoted text."""
    names = [*members]
    rest: list[str] = []
    for each in reversed(names[: names.index(name) + 1]):
        rest.insert(0, str(each))
        if members[each] is not None:
            break
    else:
        return ""
    text = members[rest[0]]
    if not isinstance(text, str):
        return ""
    quoted = json.dumps(", ".join([text, *rest[1:]]), ensure_ascii=False)
    return f" A text with a comma stands in quotes: {{{rest[0]}: {quoted}}}."


def is_whole_schema(parameters: Mapping[str, Any]) -> bool:
    """Return whether a mapping is an object schema, rather than parameters by name."""
    return parameters.get("type") == "object" and isinstance(parameters.get("properties"), Mapping)
