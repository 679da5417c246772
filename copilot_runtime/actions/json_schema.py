"""Validates values against untrusted JSON schemas, in bounded time and without network access."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any

from copilot_runtime.base.errors import ConfigurationFailed

_MOST_MISFITS = 5
_LONGEST = 300


def list_misfits(value: Any, schema: Mapping[str, Any]) -> list[str]:
    """Return the validation errors, each as a path and a message.

    Raises `ConfigurationFailed` for an invalid schema.
    """
    import re

    from jsonschema import Draft202012Validator, SchemaError
    from jsonschema.validators import validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    try:
        dialect: Any = validator_for(schema, default=Draft202012Validator)
        dialect.check_schema(schema)
        # an empty registry, or else a schema could have this server fetch any URL
        validator = limit_dialect(dialect, has_patterns=False)(schema, registry=Registry())
        errors = [*islice(validator.iter_errors(value), _MOST_MISFITS)]
    except RecursionError:
        return ["it is nested too deeply"]
    except (SchemaError, Unresolvable, TypeError, ValueError, re.error) as error:
        raise ConfigurationFailed(f"The schema is no JSON schema: {_shorten(error)}") from error
    return [_describe(error) for error in errors]


@cache
def limit_dialect(dialect: Any, *, has_patterns: bool) -> Any:
    """Return a dialect without checks of superlinear time: `uniqueItems` and patterns."""
    from jsonschema import ValidationError
    from jsonschema.validators import extend

    def check_unique(
        validator: Any, is_unique: Any, items: Any, schema: Any
    ) -> Iterator[ValidationError]:
        del schema
        if is_unique and validator.is_type(items, "array"):
            texts = {json.dumps(item, sort_keys=True) for item in items}
            if len(texts) < len(items):
                yield ValidationError("it has equal items")

    patterns = {} if has_patterns else {"pattern": None, "patternProperties": None}
    return extend(dialect, {"uniqueItems": check_unique, **patterns})


def _describe(error: Any) -> str:
    place = str(error.json_path).removeprefix("$").removeprefix(".")
    return f"{place}: {_shorten(error.message)}" if place else _shorten(error.message)


def _shorten(problem: object) -> str:
    text = str(problem).partition("\n")[0]
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
