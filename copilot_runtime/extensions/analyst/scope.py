"""Whose rows a question may see."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from copilot_runtime.base.jsontext import dumps


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Who asks, as far as it decides what may be read.

    Whatever is computed from data, such as statistics, samples and results, belongs to one scope:
    what is kept of it is kept under its `key`.
    """

    user: str | None = None
    """What the `authenticate` hook returned."""
    values: Mapping[str, str] = field(default_factory=dict)
    """Values of the variables in row filters, such as `tenant`; they never come from a page."""
    agent_name: str | None = None
    """Only rows of this `source_name` count, in tables that have such a column."""
    is_operator: bool = False
    """Whether they may ask about what is kept of runs here: data sets for operators."""

    @cached_property
    def key(self) -> str:
        """16 hexadecimal digits, equal for scopes that may see the same."""
        values = dict(sorted(self.values.items()))
        parts = [self.user, values, self.agent_name, self.is_operator]
        return hashlib.sha256(dumps(parts)).hexdigest()[:16]

    @property
    def owner(self) -> str | None:
        """Whose memory, charts and files they are: the user's, or of all who see the same rows."""
        if self.user is None and self.values:
            return f"scope:{replace(self, agent_name=None).key}"
        return self.user

    @property
    def variables(self) -> Mapping[str, str | None]:
        """What `$name` stands for in a row filter; one that is not there refuses every row."""
        return {**self.values, "user": self.user}
