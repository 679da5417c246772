"""Why a runtime refused a request, as a client reads it of an answer that is no stream."""

from collections.abc import Sequence
from typing import NamedTuple

from copilot_runtime.base.jsontext import loads
from copilot_runtime.base.jsonvalue import as_list, as_object, as_text, get_text

_KEYS = ("message", "details", "error", "detail")
"""Where the reason may stand; `detail` is FastAPI's."""


class RefusalReason(NamedTuple):
    """A reason, the code of the error if there is one, and the agents if another was asked for."""

    message: str
    code: str
    agents: Sequence[str]


def decode_refusal(body: bytes) -> RefusalReason | None:
    """Return the reason that an answer gives; None if it says no more than that it is not found."""
    try:
        fields = as_object(loads(body))
    except ValueError:
        return None
    reasons = (get_text(fields, key) for key in _KEYS)
    message = next((it for it in reasons if it and it.lower() != "not found"), None)
    if message is None:
        return None
    agents = [as_text(name) for name in as_list(fields.get("known"))]
    return RefusalReason(message, get_text(fields, "code"), agents)
