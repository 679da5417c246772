"""The caller of a request."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from copilot_runtime.api.identity import ANONYMOUS, Identity
from copilot_runtime.telemetry.context import SpanContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The caller of a request: `user` owns the created data, `identity` has the permissions.

    The other fields are those of `RunInput`.
    """

    user: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, Any] = field(default_factory=dict)
    url: str | None = None
    parent: SpanContext | None = field(default=None, repr=False, compare=False)
    identity: Identity = field(default=ANONYMOUS, compare=False)

    def merge_properties(self, properties: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """Return the operator's properties, overridden by those of a request."""
        return {**self.properties, **(properties or {})}


SelectNames = Callable[[Sequence[str], str | None], Awaitable[Sequence[str]]]
"""Returns the subset of some names that a user may use; the user is None if anonymous."""
