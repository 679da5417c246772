"""The definition of a tool: its name, pydantic arguments, and a function on a session."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from copilot_runtime.actions.json_schema import simplify
from copilot_runtime.base.errors import CopilotError
from copilot_runtime.base.jsonvalue import JsonObject, parse_text
from copilot_runtime.extensions.analyst.results import ToolResult

if TYPE_CHECKING:
    from copilot_runtime.extensions.analyst.session import Session

Effect = Literal["none", "output", "write"]
"""Side effect of a tool: none, an output (chart or file), or a write of data."""

_MOST_PROBLEMS = 5


class Arguments(BaseModel):
    """The base of the arguments of tools. What a model adds besides is left out."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True, str_max_length=100_000)


class ToolFailed(CopilotError):
    """A tool call that cannot be executed; message and hint are for the model."""

    code = "MISUSE"
    status_code = 400
    severity = "warning"
    is_hint_public = True

    def __init__(
        self, message: str, *, hint: str | None = None, details: JsonObject | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.details: JsonObject = details or {}
        """Additional fields for the model."""


@dataclass(frozen=True, kw_only=True)
class AnalystTool:
    """A tool of the analyst."""

    name: str
    description: str
    """When and how to use it, for models."""
    arguments: type[Arguments]
    run: "Callable[[Session, Any], Awaitable[ToolResult]]"
    describe_call: Callable[[Any], str]
    """Returns a description of a call, for the thoughts."""
    effect: Effect = "none"
    is_cached: bool = True

    @cached_property
    def parameters(self) -> Mapping[str, Any]:
        """The JSON schema of the arguments, for models."""
        return simplify(self.arguments.model_json_schema(by_alias=False))

    def parse_arguments(self, arguments: Mapping[str, Any]) -> Arguments:
        """Return validated arguments. Null counts as missing. Raises `ToolFailed`."""
        values = {key: value for key, value in arguments.items() if value is not None}
        try:
            return self.arguments.model_validate(values)
        except ValidationError as error:
            problems = [_describe_problem(item) for item in error.errors(include_url=False)]
            names = ", ".join(self.arguments.model_fields)
            raise ToolFailed(
                f"Invalid arguments of {self.name}: {'; '.join(problems[:_MOST_PROBLEMS])}.",
                hint=f"Known arguments: {names}.",
            ) from error


def analyst_tool(
    *,
    description: str,
    describe_call: Callable[[Any], str],
    effect: Effect = "none",
    is_cached: bool = True,
) -> "Callable[[Callable[[Session, Any], Awaitable[ToolResult]]], AnalystTool]":
    """Make a tool of a function, whose name and second argument it takes; see `AnalystTool`."""

    def make(run: "Callable[[Session, Any], Awaitable[ToolResult]]") -> AnalystTool:
        return AnalystTool(
            name=run.__name__,
            description=description,
            arguments=run.__annotations__["arguments"],
            run=run,
            describe_call=describe_call,
            effect=effect,
            is_cached=is_cached,
        )

    return make


TableName = Annotated[
    str | None, Field(description="Another data set than the one of the question.")
]


def split_names(value: Any) -> Any:
    """Accept one name, comma-separated names, or a list."""
    value = parse_text(value) if isinstance(value, str) and value.startswith("[") else value
    if isinstance(value, str):
        return [name.strip() for name in value.split(",") if name.strip()]
    return value


Names = Annotated[list[str], BeforeValidator(split_names)]


def _describe_problem(problem: Any) -> str:
    place = ".".join(map(str, cast("tuple[Any, ...]", problem["loc"])))
    return f"{place}: {problem['msg']}" if place else str(problem["msg"])


def alias(name: str, *others: str) -> Any:
    """Return alternative names of an argument, which models know from similar tools."""
    return AliasChoices(name, *others)


def dump_arguments(arguments: Arguments) -> JsonObject:
    """Return validated arguments as JSON, equal for equivalent calls."""
    return arguments.model_dump(mode="json")
