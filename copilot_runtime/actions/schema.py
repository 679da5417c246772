"""Derives a JSON schema from a function's signature, and validates a model's arguments."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Annotated, Any, NamedTuple, cast, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from copilot_runtime.actions.json_schema import simplify
from copilot_runtime.api.action import ActionContext
from copilot_runtime.base.errors import ConfigurationFailed

_MAX_PROBLEMS = 10


class InvalidArguments(ValueError):
    """The model's arguments do not fit the schema; the message is for the model."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """The parameters of a function: `schema` is for the model, `validate` checks its arguments."""

    model: type[BaseModel]
    parameters: Sequence["_Parameter"]
    contexts: Sequence[str]
    schema: Mapping[str, Any]
    _: KW_ONLY
    takes_any: bool

    def validate(self, values: Mapping[str, Any], context: ActionContext) -> dict[str, Any]:
        """Return keyword arguments. Raises `InvalidArguments` naming every wrong field."""
        keys = {parameter.key for parameter in self.parameters}
        try:
            checked = self.model.model_validate({k: v for k, v in values.items() if k in keys})
            problems: list[str] = []
        except ValidationError as error:
            checked, problems = None, [*map(_problem, error.errors(include_url=False))]
        extra = {key: value for key, value in values.items() if key not in keys}
        if extra and keys and not self.takes_any:
            problems += [f"{key}: there is no such argument" for key in extra]
        if checked is None or problems:
            raise InvalidArguments(_explain(problems, keys))
        # omitted arguments keep the function's own defaults
        keywords = {
            parameter.name: getattr(checked, parameter.field)
            for parameter in self.parameters
            if parameter.pass_default or parameter.field in checked.model_fields_set
        }
        keywords |= dict.fromkeys(self.contexts, context)
        return {**extra, **keywords} if self.takes_any else keywords


def inspect_arguments(
    function: Callable[..., Any],
    where: str,
    descriptions: Mapping[str, str],
    schema: Mapping[str, Any] | None = None,
) -> Arguments:
    """Inspect a function's signature; `schema` replaces the derived schema.

    Raises `ConfigurationFailed` with the names of the function and of the invalid parameter.
    """
    hints = _hints(function, where)
    parameters: list[_Parameter] = []
    contexts: list[str] = []
    takes_any = False
    for parameter in _signature(function, where):
        hint = hints.get(parameter.name, Any)
        if parameter.kind is parameter.VAR_KEYWORD and schema is not None:
            takes_any = True
        elif problem := _describe_misfit(parameter):
            raise ConfigurationFailed(
                f"{where} cannot be an action: its parameter {parameter.name!r} {problem}."
            )
        elif _is_context(hint):
            contexts.append(parameter.name)
        else:
            field = f"argument_{len(parameters)}"
            parameters.append(_parameter(parameter, hint, field, descriptions))
    try:
        model = _build_model(parameters)
        own = _build_schema(model) if schema is None else None
    except Exception as error:  # an annotation is code, and may raise anything
        raise _blame_parameter(parameters, where, error) from error
    sent = simplify(own) if own else _check_schema(schema or {}, parameters, where, takes_any)
    return Arguments(model, parameters, contexts, sent, takes_any=takes_any)


class _Parameter(NamedTuple):
    name: str
    """The name of the parameter in the function."""
    key: str
    """The name in the schema for the model: its alias, if it has one."""
    field: str
    """The name in the pydantic model, which reserves names such as `json` and `_private`."""
    definition: Any
    """The argument for `create_model`: a type, or a type and a default."""
    needed: bool
    pass_default: bool
    """True when the default is one of pydantic's `Field`, and not of the function."""


def _signature(function: Callable[..., Any], where: str) -> Sequence[inspect.Parameter]:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigurationFailed(f"{where} cannot be an action: it yields instead of returning.")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise ConfigurationFailed(f"{where} cannot be an action: {error}.") from error
    # parameters bound by `partial` are not for the model
    bound = cast("partial[Any]", function).keywords if isinstance(function, partial) else {}
    return [item for item in signature.parameters.values() if item.name not in bound]


def _hints(function: Any, where: str) -> Mapping[str, Any]:
    while isinstance(function, partial):
        function = cast("partial[Any]", function).func
    if inspect.isclass(function):
        function = function.__init__
    elif not inspect.isroutine(function):
        function = type(function).__call__
    try:
        return get_type_hints(inspect.unwrap(function), include_extras=True)
    except (NameError, TypeError, SyntaxError, AttributeError) as error:
        raise ConfigurationFailed(
            f"{where} cannot be an action: an annotation of it is unknown ({error}).",
            hint="Import the type at the top of the module, outside `if TYPE_CHECKING`.",
        ) from error


def _describe_misfit(parameter: inspect.Parameter) -> str | None:
    """Return the reason why a model cannot pass this parameter (JSON, by name), or `None`."""
    if parameter.name == "self" and parameter.annotation is parameter.empty:
        return "has no object; make the action from a bound method: action(thing.method)"
    match parameter.kind:
        case parameter.POSITIONAL_ONLY:
            return "is positional-only, and models name their arguments; remove the '/'"
        case parameter.VAR_POSITIONAL:
            return "takes any number of values; use one parameter that is a list"
        case parameter.VAR_KEYWORD:
            return "takes any name; name the parameters, or give a JSON schema as parameters="
        case _:
            return None


def _is_context(hint: Any) -> bool:
    if get_origin(hint) is Annotated:
        return _is_context(get_args(hint)[0])
    return hint is ActionContext or ActionContext in get_args(hint)


def _parameter(
    parameter: inspect.Parameter, hint: Any, field: str, descriptions: Mapping[str, str]
) -> _Parameter:
    default: Any = parameter.default
    has_field = isinstance(default, FieldInfo)
    if has_field:  # it carries limits as well, which belong to the type
        hint = Annotated[hint, default]
    extras: tuple[Any, ...] = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    fields_info = [item for item in reversed(extras) if isinstance(item, FieldInfo)]
    key = next((item.alias for item in fields_info if item.alias), parameter.name)
    words = [item.description for item in fields_info if item.description]
    description = words[0] if words else descriptions.get(parameter.name)
    annotation = Annotated[hint, Field(alias=key, description=description)]
    definition: Any = annotation
    if not has_field:
        definition = (annotation, ... if default is parameter.empty else default)
    needed = default.is_required() if has_field else default is parameter.empty
    return _Parameter(parameter.name, key, field, definition, needed, has_field)


def _build_model(parameters: Sequence[_Parameter]) -> type[BaseModel]:
    fields: dict[str, Any] = {parameter.field: parameter.definition for parameter in parameters}
    return create_model("Arguments", __config__=_CONFIG, **fields)


def _build_schema(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema(schema_generator=_Generator)


def _blame_parameter(
    parameters: Sequence[_Parameter], where: str, error: Exception
) -> ConfigurationFailed:
    """Find the parameter whose type cannot be described."""
    for parameter in parameters:
        try:
            _build_schema(_build_model([parameter]))
        except Exception as cause:  # as above
            reason = str(cause).partition("\n")[0]
            return ConfigurationFailed(
                f"{where} cannot be an action: the type of its parameter {parameter.name!r}"
                f" has no JSON schema. {reason}"
            )
    return ConfigurationFailed(f"{where} cannot be an action: {error}")


def _check_schema(
    schema: Mapping[str, Any], parameters: Sequence[_Parameter], where: str, takes_any: bool
) -> dict[str, Any]:
    """Check a hand-written schema against the function it is for."""
    schema = {"type": "object", "properties": {}, "required": [], **schema}
    properties = schema["properties"]
    if schema["type"] != "object" or not isinstance(properties, Mapping):
        raise ConfigurationFailed(
            f"The parameters of {where} must be the JSON schema of an object."
        )
    keys = {parameter.key for parameter in parameters}
    names = {str(name) for name in cast("Mapping[Any, Any]", properties)}
    if (unknown := sorted(names - keys)) and not takes_any:
        raise ConfigurationFailed(f"{where} has no parameter {unknown[0]!r}; its schema has.")
    required = [item.key for item in parameters if item.needed and item.key not in names]
    if required:
        raise ConfigurationFailed(f"{where} needs {required[0]!r}, which its schema leaves out.")
    return schema


def _problem(error: Any) -> str:
    place = ".".join(map(str, error["loc"]))
    return f"{place}: {error['msg']}" if place else str(error["msg"])


def _explain(problems: Sequence[str], keys: set[str]) -> str:
    listing = "; ".join(problems[:_MAX_PROBLEMS])
    more = f"; and {left} more" if (left := len(problems) - _MAX_PROBLEMS) > 0 else ""
    return f"Invalid arguments: {listing}{more}. Known: {', '.join(sorted(keys))}."


class _Generator(GenerateJsonSchema):
    """Makes schemas without defaults that are not JSON; the function keeps them."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - pydantic declares it


_CONFIG = ConfigDict(extra="ignore", protected_namespaces=(), title="Arguments")
