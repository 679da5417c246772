"""The base class of settings sections, common field types, and variables of other programs."""

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
    """Read `a, b` as a list: environment variables are text."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def read_object(value: Any) -> Any:
    """Read JSON text as a mapping: environment variables are text."""
    if not isinstance(value, str):
        return value
    try:
        found = json.loads(value)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ValueError('it is no JSON object, such as {"model": "gpt-4o"}')
    return cast("dict[str, Any]", found)


def _check_seconds(value: Any) -> Any:
    """Refuse a text that is no number, such as one with a unit."""
    if isinstance(value, str):
        try:
            float(value)
        except ValueError:
            raise ValueError("should be a number of seconds, such as 86400 for a day") from None
    return value


def check_match(pattern: str, rule: str) -> AfterValidator:
    """Refuse a text that a pattern does not match, in the words of `rule`."""

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
    """Settings that belong together: what is not one of them is an error."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_default=True,
        hide_input_in_errors=True,  # it may have a secret
    )

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_switches(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse yes and no for a number: pydantic would read 1 and 0, YAML's `yes` one second."""
        if not isinstance(value, bool):
            return value
        field = cls.model_fields[info.field_name or ""]
        kinds = get_args(field.annotation) or (field.annotation,)
        if bool not in kinds and {int, float}.intersection(kinds):
            way_out = "" if field.default is None else f": write one, such as {field.default:g}"
            raise ValueError(f"it is true or false, and no number{way_out}")
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
    """Those that start with `COPILOT_`, which would be misspelt settings otherwise."""
    read_before: ReadVariables = _read_nothing
    """Reads variables that count less than `COPILOT_SECTION_KEY`."""
    read_after: ReadVariables = _read_nothing
    """Reads variables that count more, or only where the settings leave a value open."""
