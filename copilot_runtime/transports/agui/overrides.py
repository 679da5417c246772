"""Decode an operator's changes of an agent for one run, a field of the body beside AG-UI's own.

`overrides` is no property of `forwardedProps`: hooks, remote agents and stores get those, and any
page can set them with CopilotKit's own components.
"""

from typing import Any, Protocol

from copilot_runtime.api.identity import Forbidden
from copilot_runtime.api.run_input import Overrides
from copilot_runtime.base.errors import Misuse
from copilot_runtime.base.jsonvalue import as_object, optional_text, require_list, require_object
from copilot_runtime.transports.parameters import parse_forwarded_parameters
from copilot_runtime.transports.request import Request

_FIELDS = {"instructions", "parameters", "tools"}


class Playground(Protocol):
    """Decides who may change an agent for a run."""

    def authorize(self, request: Request) -> None:
        """Raise a `CopilotError` with status 403 for a request that may not."""
        ...


def read_overrides(body: Any, request: Request, playground: Playground | None) -> Overrides | None:
    """Return the changes in the body of a run, or `None`.

    Raises `Forbidden`, the error of the `playground`, and `Misuse` for malformed changes.
    """
    value = as_object(body).get("overrides")
    if value is None:
        return None
    if playground is None:
        raise Forbidden("This server has no playground.")
    playground.authorize(request)
    fields = require_object(value, "overrides")
    if unknown := fields.keys() - _FIELDS:
        raise Misuse(f"overrides has {min(unknown)[:100]!r}, and may have {sorted(_FIELDS)}.")
    parameters, tools = fields.get("parameters"), fields.get("tools")
    values = {} if parameters is None else require_object(parameters, "overrides.parameters")
    names = [] if tools is None else require_list(tools, "overrides.tools")
    if not all(isinstance(name, str) for name in names):
        raise Misuse("overrides.tools must be a list of texts.")
    return Overrides(
        instructions=optional_text(fields, "instructions", "overrides"),
        parameters=parse_forwarded_parameters(values, "overrides.parameters"),
        tools=None if tools is None else frozenset(names),
    )
