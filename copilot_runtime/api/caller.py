"""Who asks, and which names they may use."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from copilot_runtime.api.identity import NOBODY, Identity
from copilot_runtime.telemetry.context import SpanContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks: `user` is to whom things belong, `identity` what else is known of them.

    The rest is as in `RunInput`.
    """

    user: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, Any] = field(default_factory=dict)
    url: str | None = None
    parent: SpanContext | None = field(default=None, repr=False, compare=False)
    identity: Identity = field(default=NOBODY, compare=False)

    def merge_properties(self, properties: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """Return the operator's properties with those of a request on top."""
        return {**self.properties, **(properties or {})}


SelectNames = Callable[[Sequence[str], str | None], Awaitable[Sequence[str]]]
"""Returns those of some names that a user may use; None is somebody who has not signed in."""
