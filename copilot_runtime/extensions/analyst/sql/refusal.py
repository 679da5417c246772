"""Why SQL was refused."""

from typing import Literal

from copilot_runtime.base.errors import Refused

SqlCode = Literal[
    "multiple_statements",
    "write_in_tree",
    "not_select",
    "function_not_allowed",
    "table_not_allowed",
    "parse_error",
    "too_long",
    "too_deep",
    "too_large",
]


class SqlRefused(Refused):
    """The guard refused SQL before it reached the data. The message is a sentence for a person.

    `name` is the table or the function that is not allowed; `candidates` are tables with a similar
    name that this person may read. `is_unknown` tells a function that there is not from one that
    is forbidden.
    """

    is_hint_public = True

    def __init__(
        self,
        code: SqlCode,
        message: str,
        *,
        hint: str | None = None,
        name: str | None = None,
        candidates: tuple[str, ...] = (),
        is_unknown: bool = False,
    ) -> None:
        super().__init__(message, hint=hint)
        self.reason: SqlCode = code
        self.error_type = code
        self.name = name
        self.candidates = candidates
        self.is_unknown = is_unknown
