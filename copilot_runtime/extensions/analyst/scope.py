"""The scope of a question: the rows that its caller may read."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from copilot_runtime.base.jsontext import dumps


@dataclass(frozen=True, kw_only=True)
class Scope:
    """The attributes of a caller that decide which rows may be read.

    Everything computed from data, such as statistics, samples and results, belongs to one scope,
    and is cached and stored under its `key`.
    """

    user: str | None = None
    """The user returned by the `authenticate` hook, or `None`."""
    values: Mapping[str, str] = field(default_factory=dict)
    """Values of the variables in row filters, such as `tenant`; never taken from a request."""
    agent_name: str | None = None
    """Restricts tables with a column `source_name` to rows with this value."""
    is_operator: bool = False
    """`True` if operators' data sets may be read, such as the traces of this runtime."""

    @cached_property
    def key(self) -> str:
        """16 hexadecimal digits, equal for scopes with the same permissions."""
        values = dict(sorted(self.values.items()))
        parts = [self.user, values, self.agent_name, self.is_operator]
        return hashlib.sha256(dumps(parts)).hexdigest()[:16]

    @property
    def owner(self) -> str | None:
        """The owner of memory, charts and files: the user, or callers with equal row values."""
        if self.user is None and self.values:
            return f"scope:{replace(self, agent_name=None).key}"
        return self.user

    @property
    def variables(self) -> Mapping[str, str | None]:
        """Values of `$name` in row filters; an undefined variable refuses every row."""
        return {**self.values, "user": self.user}
