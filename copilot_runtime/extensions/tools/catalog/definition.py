"""Reads tools from YAML: a mapping from their names to what they are and what they call."""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal, Self, cast

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
from copilot_runtime.base.jsonvalue import JsonObject
from copilot_runtime.config.yaml_model import find_line, list_keys, parse_yaml_model
from copilot_runtime.extensions.tools.catalog.endpoints import EndpointOptions, endpoint_kinds
from copilot_runtime.extensions.tools.catalog.parameters import find_mistakes

MAX_SIZE = 1024 * 1024
"""Bytes of the largest file."""

GRPC = "grpc"
SERVICES = "services"
"""The key of a file that is no tool: what several tools share."""

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Text = Annotated[str, StringConstraints(strip_whitespace=True, max_length=20_000)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]


class ToolFields(BaseModel):
    """What stands below the name of a tool, its endpoint left out."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    description: Text = ""
    """What the model reads, where it is not said in the four parts below."""
    purpose: Text = ""
    applicability: Text = ""
    instructions: Text = ""
    evaluation: Text = ""
    parameters: Mapping[str, Any] = Field(default={})
    """Parameters by name, each as its description or a JSON schema; or the schema of all."""
    arguments: Mapping[str, Any] = Field(default={})
    """Fixed arguments: they take the place of the model's, which never sees them."""
    hidden: tuple[str, ...] = ()
    """Parameters that the model never sees, and that are not sent."""
    returns: Mapping[str, Any] | None = None
    """The JSON schema of its results; one that does not fit is an error of the call."""
    timeout: Seconds = 30.0
    retries: Annotated[int, Field(ge=0, le=10)] = 2
    """How often a call is made again that failed on the way, where that does no harm."""
    max_result: Annotated[int, Field(gt=0, le=1024 * 1024)] = 64 * 1024
    """Bytes of the longest result."""
    idempotent: bool | None = None
    """Whether two calls have the effect of one; None: as the endpoint says."""
    result_form: Literal["content", "identifiers"] | None = Field(default=None, alias="as")
    """Whether a result is what it is, or names resources of knowledge, whose texts are meant."""
    method: str = ""
    """Copilot-LD's form of an endpoint: `package.Service.Method` of gRPC."""
    request: str = ""
    """Copilot-LD's form: the message that the method takes, `package.Type`."""


class ToolDefinition(ToolFields):
    """A tool as its operator wrote it."""

    name: str
    source: str
    """The file and the line, for errors."""
    kind: str
    """The kind of its endpoint."""
    options: EndpointOptions
    """What that kind needs to know."""

    @property
    def sections(self) -> str:
        """What the model is told: the parts under the headings of Copilot-LD."""
        parts = (
            ("", self.description),
            ("PURPOSE: ", self.purpose),
            ("WHEN TO USE: ", self.applicability),
            ("HOW TO USE: ", self.instructions),
            ("RETURNS: ", self.evaluation),
        )
        return "\n\n".join(heading + text for heading, text in parts if text)

    def describe_resource(self) -> JsonObject:
        """Return what it is as a resource: nothing of its endpoint, and no fixed arguments."""
        fields = self.model_dump(
            include={"purpose", "instructions", "applicability", "evaluation", "description"}
        )
        names = {"content": self.sections, "title": self.name, "name": self.name}
        return {**fields, **names, "endpoint": self.kind}


def parse_tools(text: str, source: str) -> Mapping[str, ToolDefinition]:
    """Return the tools of a file by name.

    Raises `ConfigurationFailed` with the line of each mistake.
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
    """Return what several tools of a file share. Raises `ConfigurationFailed`."""
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
    """The kinds of endpoints as fields, of which a tool has one."""

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
    """Return the model of a file: its fields depend on which kinds of endpoints there are."""
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
