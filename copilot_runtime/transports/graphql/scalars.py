"""The scalars of the v1 schema that GraphQL itself does not have."""

from datetime import datetime
from typing import Any, NewType

import strawberry
from strawberry.schema.config import StrawberryConfig

from copilot_runtime.transports.graphql.names import Names

__all__ = ["CONFIG", "JSON", "DateTimeISO", "JSONObject"]

_ECMA_404 = "http://www.ecma-international.org/publications/files/ECMA-ST/ECMA-404.pdf"

DateTimeISO = NewType("DateTimeISO", datetime)
JSON = NewType("JSON", object)
JSONObject = NewType("JSONObject", dict[str, Any])


def _parse_date(value: object) -> datetime:
    if not isinstance(value, str):
        raise ValueError(f"DateTimeISO cannot represent non string value: {value!r}")
    return datetime.fromisoformat(value)


def _parse_object(value: object) -> object:
    if not isinstance(value, dict):
        raise ValueError(f"JSONObject cannot represent non-object value: {value!r}")
    return value


def iso(moment: datetime) -> str:
    """Write a moment as JavaScript does: UTC, milliseconds, `Z`."""
    return f"{moment.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"


CONFIG = StrawberryConfig(
    name_converter=Names(),
    enable_experimental_incremental_execution=True,
    scalar_map={
        DateTimeISO: strawberry.scalar(
            name="DateTimeISO",
            description="A date-time string at UTC, such as 2007-12-03T10:15:30.000Z (RFC 3339).",
            serialize=iso,
            parse_value=_parse_date,
        ),
        JSON: strawberry.scalar(
            name="JSON",
            description=f"The `JSON` scalar type represents JSON values as specified by "
            f"[ECMA-404]({_ECMA_404}).",
            specified_by_url=_ECMA_404,
            serialize=lambda value: value,
            parse_value=lambda value: value,
        ),
        JSONObject: strawberry.scalar(
            name="JSONObject",
            description=f"The `JSONObject` scalar type represents JSON objects as specified by "
            f"[ECMA-404]({_ECMA_404}).",
            specified_by_url=_ECMA_404,
            serialize=lambda value: value,
            parse_value=_parse_object,
        ),
    },
)
