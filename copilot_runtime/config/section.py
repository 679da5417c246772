"""The base class of settings sections, common field types, and extra environment variables."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, cast, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
)

from copilot_runtime.config.checks import check_store_url


def split_words(value: Any) -> Any:
    """Parse `a, b` as a list, because environment variables are strings."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def read_object(value: Any) -> Any:
    """Parse JSON text as a mapping, because environment variables are strings."""
    if not isinstance(value, str):
        return value
    try:
        found = json.loads(value)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ValueError('it is not a JSON object such as {"model": "gpt-4o"}')
    return cast("dict[str, Any]", found)


def _check_seconds(value: Any) -> Any:
    """Raise `ValueError` for a string that is not a number, such as one with a unit."""
    if isinstance(value, str):
        try:
            float(value)
        except ValueError:
            raise ValueError("should be a number of seconds, such as 86400 for a day") from None
    return value


def check_match(pattern: str, rule: str) -> AfterValidator:
    """Return a validator for strings that match a pattern, which `rule` describes in errors."""

    def check(value: str) -> str:
        if re.search(pattern, value) is None:
            raise ValueError(f"should be {rule}")
        return value

    return AfterValidator(check)


Words = Annotated[tuple[str, ...], BeforeValidator(split_words)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False), BeforeValidator(_check_seconds)]
SecondsOrNone = Annotated[float, Field(ge=0, allow_inf_nan=False), BeforeValidator(_check_seconds)]
Count = Annotated[int, Field(gt=0)]
CarrierAddress = Annotated[
    str,
    check_match(r"^(auto|none|(rediss?|unix)://.+)$", "auto, none, or redis://HOST:PORT"),
    AfterValidator(check_store_url),
]


class Section(BaseModel):
    """A section of settings; an unknown key is an error."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_default=True,
        hide_input_in_errors=True,  # it may have a secret
    )

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_switches(cls, value: Any, info: ValidationInfo) -> Any:
        """Reject booleans for numbers: pydantic would convert YAML's `yes` to 1."""
        if not isinstance(value, bool):
            return value
        field = cls.model_fields[info.field_name or ""]
        kinds = get_args(field.annotation) or (field.annotation,)
        if bool not in kinds and {int, float}.intersection(kinds):
            way_out = "" if field.default is None else f": write one, such as {field.default:g}"
            raise ValueError(f"it is a boolean, not a number{way_out}")
        return value


class Override(NamedTuple):
    """A value for a key of a section, and the environment variable that sets it."""

    key: str
    value: Any
    variable: str


ReadVariables = Callable[[Mapping[str, Any], Mapping[str, str]], Iterable[Override]]
"""Returns the overrides of a section, given its values so far and the environment."""


def _read_nothing(section: Mapping[str, Any], environ: Mapping[str, str]) -> Iterable[Override]:  # noqa: ARG001
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionVariables:
    """The environment variables of an extension for its section, besides `COPILOT_SECTION_KEY`."""

    section: str
    names: Sequence[str] = ()
    """Other variables starting with `COPILOT_`, which would be reported as misspelt settings."""
    read_before: ReadVariables = _read_nothing
    """Reads variables with a lower precedence than `COPILOT_SECTION_KEY`."""
    read_after: ReadVariables = _read_nothing
    """Reads variables with a higher precedence, or for values that the settings leave open."""
