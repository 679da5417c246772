"""The operator's default parameters of a model, and the overrides of a client."""

from collections.abc import Mapping
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any

from copilot_runtime.api.run_input import Parameters
from copilot_runtime.base.errors import ConfigurationFailed

ParametersLike = Parameters | Mapping[str, Any]
"""Parameters, or a mapping with the names of their fields, such as `{"max_tokens": 500}`."""

_NONE = Parameters()
_get_values = attrgetter(*(field.name for field in fields(Parameters) if field.name != "model"))
_NO_VALUES = _get_values(_NONE)


def parse_parameters(values: ParametersLike | None) -> Parameters:
    """Validate parameters given as an argument. Raises `ConfigurationFailed` if they are invalid.

    The names and types are those of the settings section `parameters`.
    """
    if values is None:
        return _NONE
    mapping: Any = _as_mapping(values) if isinstance(values, Parameters) else values
    if not isinstance(mapping, Mapping):
        raise ConfigurationFailed(
            f"The parameters are a {type(values).__name__}, and not a mapping of names to values.",
            hint="Write parameters={'temperature': 0.2, 'max_tokens': 500}.",
        )
    from pydantic import ValidationError  # only for those who give some

    from copilot_runtime.config.problems import SettingOrigins, explain
    from copilot_runtime.config.sections import ParameterSettings

    by_name = {str(name): value for name, value in mapping.items()}
    try:
        section = ParameterSettings.model_validate(by_name, strict=True)
    except ValidationError as error:
        places = dict.fromkeys(by_name, "The argument 'parameters'")
        raise explain(
            error, [*ParameterSettings.model_fields], SettingOrigins(overrides=places)
        ) from None
    parameters = Parameters(**section.model_dump())
    return _NONE if parameters == _NONE else parameters  # the very same is compared in no time


def merge_parameters(defaults: Parameters, overrides: Parameters) -> Parameters:
    """Return the overrides, with `defaults` for the fields that are `None`."""
    if defaults is _NONE or defaults == _NONE:
        return overrides
    return replace(defaults, **_as_mapping(overrides))


def has_values(parameters: Parameters) -> bool:
    """Return whether any parameter but the model is set."""
    return _get_values(parameters) != _NO_VALUES


def _as_mapping(parameters: Parameters) -> Mapping[str, Any]:
    values = {field.name: getattr(parameters, field.name) for field in fields(parameters)}
    return {name: value for name, value in values.items() if value is not None}
