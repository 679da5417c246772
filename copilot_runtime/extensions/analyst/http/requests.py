"""What all requests of the analyst's routes have in common."""

from typing import Any

from copilot_runtime.transports.body import BadRequest
from copilot_runtime.transports.request import Request

PRIVATE = {"cache-control": "private, no-store", "x-content-type-options": "nosniff"}
"""Headers of answers that are for one person."""


async def read_json(request: Request) -> Any:
    """Return the JSON of a body; none is an empty object. Raises `BadRequest`."""
    if not await request.body():
        return {}
    try:
        return await request.json()
    except ValueError:
        raise BadRequest("The request body is no JSON.") from None
